// The parts of the tracer that need no traced process.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "buffer_pool.h"
#include "nvtx_ranges.h"
#include "sink.h"
#include "step_name.h"
#include "tables.h"
#include "utf8.h"
#include "window.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
      std::exit(1);                                                           \
    }                                                                         \
  } while (false)

namespace gapscope {
namespace {

void labels_are_split() {
  SplitLabel split = split_label("aten::mul, seq = 12, op_id = 34");
  CHECK(split.label == "aten::mul" && split.sequence == 12 && split.op_id == 34);
  split = split_label("aten::mul, op_id = 0");
  CHECK(split.label == "aten::mul" && split.sequence == kNoNumber && split.op_id == 0);
  for (const char* text : {"step 12", "", "7", ", op_id = 7", "x, op_id = ", "x, seq = 3"}) {
    split = split_label(text);
    CHECK(split.label == text && split.op_id == kNoNumber && split.sequence == kNoNumber);
  }
  // More digits than a number of 64 bits is sure to hold.
  CHECK(split_label("x, op_id = 1234567890123456789").op_id == kNoNumber);
}

void steps_are_recognized() {
  struct {
    const char* name;
    int64_t number;
  } const cases[] = {{"step 7", 7},          {"ProfilerStep#12", 12}, {"Iteration: 3", 3},
                     {"iter_0", 0},          {"STEP5", 5},            {"train step 4", 4},
                     {"training_iter#9", 9}, {"global_step = 8", 8},  {"Train Global Step 2", 2},
                     {"step", -1},           {"7", -1},               {"", -1},
                     {"step 7 ", -1},        {"my step 7", -1},       {"footstep 7", -1},
                     {"profilerstep#1", -1}, {"trainer step 1", -1},  {"layer 3", -1},
                     {" step 1", -1},        {"step 1234567890123456789", -1}};
  for (const auto& one : cases) CHECK(step_number(one.name) == one.number);
}

void windows_open_once() {
  Window window;
  CHECK(!window.has(0, INT64_MAX));
  CHECK(window.open(10) && !window.open(11) && window.is_open());
  CHECK(window.has(5, 10) && window.has(10, 90) && !window.has(5, 9));
  CHECK(window.close(20) && !window.close(30) && !window.open(40) && !window.is_open());
  CHECK(window.has(20, INT64_MAX) && !window.has(21, INT64_MAX) && window.has(0, 90));
  window.forget();
  // Closed before it opened: never.
  CHECK(window.close(5) && !window.open(6) && !window.has(0, INT64_MAX));
}

void names_come_before_rows() {
  MemorySink sink;
  Loss loss;
  Tables tables(sink, loss);
  const uint32_t mul = tables.name("mul");
  CHECK(mul == 1 && tables.name("add") == 2 && tables.name("mul") == mul);
  CHECK(tables.thread(99) == 0 && tables.thread(100) == 1 && tables.thread(99) == 0);
  const auto name_of = [] { return std::string_view("cudaLaunchKernel"); };
  CHECK(tables.call(ApiDomain::kRuntime, 211, 0, name_of) == 0);
  CHECK(tables.call(ApiDomain::kDriver, 211, 0, name_of) == 1);
  CHECK(tables.call(ApiDomain::kRuntime, 211, 700, name_of) == 2);
  CHECK(tables.call(ApiDomain::kRuntime, 211, 0, name_of) == 0);
  tables.api.append(int64_t{1}, int64_t{2}, uint32_t{3}, uint16_t{0}, uint16_t{2});
  // While descriptions cannot be written, neither are rows; the descriptions wait.
  sink.fail = true;
  tables.flush_all();
  CHECK(loss.rows_unwritten == 1 && sink.rows("name").empty());
  sink.fail = false;
  tables.api.append(int64_t{4}, int64_t{5}, uint32_t{6}, uint16_t{1}, uint16_t{0});
  tables.flush_all();
  CHECK(sink.rows("name").size() == 3);
  CHECK((sink.rows("call")[2] == std::vector<std::string>{"2", "0", "3", "700"}));
  CHECK((sink.rows("api")[0] == std::vector<std::string>{"4", "5", "6", "1", "0"}));
}

void text_becomes_utf8() {
  for (const char* text : {"", "step 7", "l\u00e9ger", "\u4e09", "\U0001F600", "\U0010FFFF"}) {
    CHECK(is_utf8(text) && to_utf8(text) == text);
  }
  const std::string mark = "\ufffd";
  CHECK(to_utf8("l\xe9ger") == "l" + mark + "ger");
  // Cut within a character, too long a form of `/`, half a surrogate pair, beyond the last one.
  CHECK(to_utf8("a\xe4\xb8") == "a" + mark + mark);
  CHECK(to_utf8("\xc0\xaf") == mark + mark);
  CHECK(to_utf8("\xed\xa0\x80") == mark + mark + mark);
  CHECK(to_utf8("\xf4\x90\x80\x80!") == mark + mark + mark + mark + "!");
  MemorySink sink;
  Loss loss;
  Tables tables(sink, loss);
  CHECK(tables.name("l\xe9ger") == 1 && tables.name("l\xe9ger") == 1);
  tables.clock.append(int64_t{0}, int64_t{0}, int64_t{0});
  tables.flush_all();
  CHECK(sink.rows("name")[0][1] == "l" + mark + "ger");
}

void forgotten_names_get_new_ids() {
  MemorySink sink;
  Loss loss;
  Tables tables(sink, loss);
  const uint32_t first = tables.name("first");
  for (int i = 0; i < 100000; ++i) tables.name("name number " + std::to_string(i));
  const uint32_t again = tables.name("first");
  CHECK(again != first);
  tables.clock.append(int64_t{0}, int64_t{0}, int64_t{0});
  tables.flush_all();
  CHECK(sink.rows("name").size() == again);
}

void batches_are_cut() {
  MemorySink sink;
  Loss loss;
  Tables tables(sink, loss);
  for (int i = 0; i < 100000; ++i) {
    tables.clock.append(int64_t{i}, int64_t{0}, int64_t{0});
    if (i % 1024 == 0) tables.flush_full();
  }
  CHECK(sink.rows("clock").size() >= 65536);
  tables.flush_all();
  CHECK(sink.rows("clock").size() == 100000 && sink.rows("clock")[77777][0] == "77777");
}

void buffers_come_and_go() {
  BufferPool pool(2, 4096);
  uint8_t* one = pool.take();
  uint8_t* two = pool.take();
  CHECK(one != nullptr && two != nullptr && pool.take() == nullptr);
  CHECK(pool.out() == 2);
  CHECK(pool.owns(one) && !pool.owns(reinterpret_cast<uint8_t*>(&pool)));
  pool.complete(one, 10);
  pool.complete(two, 20);
  CHECK(pool.out() == 0);
  std::vector<size_t> valid;
  CHECK(pool.drain([&](const BufferPool::Full& full) { valid.push_back(full.valid); }) == 2);
  CHECK(valid == (std::vector<size_t>{10, 20}));
  CHECK(pool.take() != nullptr && pool.take() == one);
}

void buffers_are_shared_without_loss() {
  BufferPool pool(8, 4096);
  constexpr int kThreads = 4, kTakes = 5000;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTakes; ++i) {
        uint8_t* buffer = pool.take();
        if (buffer == nullptr) {
          // Asleep, not spinning: valgrind runs one thread at a time, and not by turns.
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          --i;
          continue;
        }
        // Nobody else has it.
        CHECK(buffer[0] == 0);
        buffer[0] = 1;
        pool.complete(buffer, 1);
      }
      --running;
    });
  }
  const auto let_go = [](const BufferPool::Full& full) { full.buffer[0] = 0; };
  size_t drained = 0;
  while (running > 0) {
    drained += pool.drain(let_go);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  for (std::thread& thread : threads) thread.join();
  drained += pool.drain(let_go);
  CHECK(drained == kThreads * kTakes);
}

}  // namespace
}  // namespace gapscope

int main() {
  gapscope::labels_are_split();
  gapscope::steps_are_recognized();
  gapscope::windows_open_once();
  gapscope::names_come_before_rows();
  gapscope::text_becomes_utf8();
  gapscope::forgotten_names_get_new_ids();
  gapscope::batches_are_cut();
  gapscope::buffers_come_and_go();
  gapscope::buffers_are_shared_without_loss();
  std::puts("ok");
}
