#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "lz4frame.h"
#include "nanoarrow.h"
#include "nanoarrow_ipc.h"
#include "sink.h"

namespace gapscope {
namespace {

ArrowType arrow_type(Type type) {
  switch (type) {
    case Type::kInt64:
      return NANOARROW_TYPE_INT64;
    case Type::kUint64:
      return NANOARROW_TYPE_UINT64;
    case Type::kInt32:
      return NANOARROW_TYPE_INT32;
    case Type::kUint32:
      return NANOARROW_TYPE_UINT32;
    case Type::kUint16:
      return NANOARROW_TYPE_UINT16;
    case Type::kUint8:
      return NANOARROW_TYPE_UINT8;
    case Type::kText:
      return NANOARROW_TYPE_STRING;
  }
  return NANOARROW_TYPE_UNINITIALIZED;
}

// One table's file. Every message goes out whole or not at all: after a failed write the file is
// cut back to the last whole message, so that a full disk never tears a stream.
class Stream {
 public:
  Stream(const TableSpec& spec, std::string path, bool lz4)
      : spec_(spec), path_(std::move(path)), lz4_(lz4) {
    ArrowBufferInit(&header_);
    ArrowBufferInit(&body_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (fd_ >= 0) ::close(fd_);
    if (is_prepared_) {
      ArrowArrayViewReset(&view_);
      ArrowIpcEncoderReset(&encoder_);
      schema_.release(&schema_);
    }
    ArrowBufferReset(&header_);
    ArrowBufferReset(&body_);
  }

  bool write(const Columns& batch) {
    if (!is_prepared_ && !prepare()) return false;
    if (fd_ < 0 && !open()) return false;
    view_.length = static_cast<int64_t>(batch.rows());
    for (size_t i = 0; i < spec_.column_count; ++i) {
      ArrowArrayView* column = view_.children[i];
      column->length = view_.length;
      column->null_count = 0;
      // The encoder takes the number of buffers from the array behind the view.
      column->array = spec_.columns[i].type == Type::kText ? &text_array_ : &number_array_;
      size_t values = batch.rows();
      if (spec_.columns[i].type == Type::kText) {
        ++values;
        column->buffer_views[2].data.as_char = batch.text().data();
        column->buffer_views[2].size_bytes = static_cast<int64_t>(batch.text().size());
      }
      column->buffer_views[1].data.as_uint8 = batch.data(i);
      column->buffer_views[1].size_bytes =
          static_cast<int64_t>(values * width_of(spec_.columns[i].type));
    }
    ArrowError error;
    header_.size_bytes = body_.size_bytes = 0;
    if (ArrowIpcEncoderEncodeSimpleRecordBatch(&encoder_, &view_, &body_, &error) != NANOARROW_OK ||
        ArrowIpcEncoderFinalizeBuffer(&encoder_, 1, &header_) != NANOARROW_OK) {
      return false;
    }
    return put(header_.data, header_.size_bytes, body_.data, body_.size_bytes);
  }

  void close() {
    static const uint8_t kEndOfStream[8] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
    if (fd_ < 0) return;
    put(kEndOfStream, sizeof kEndOfStream, nullptr, 0);
    ::close(fd_);
    fd_ = -1;
  }

  uint64_t bytes() const { return static_cast<uint64_t>(length_); }

 private:
  static ArrowArray array_with(int64_t buffers) {
    ArrowArray array{};
    array.n_buffers = buffers;
    return array;
  }

  bool prepare() {
    ArrowSchemaInit(&schema_);
    if (ArrowSchemaSetTypeStruct(&schema_, static_cast<int64_t>(spec_.column_count)) !=
        NANOARROW_OK) {
      return false;
    }
    bool ok = true;
    for (size_t i = 0; i < spec_.column_count; ++i) {
      ArrowSchema* column = schema_.children[i];
      ok = ok && ArrowSchemaSetType(column, arrow_type(spec_.columns[i].type)) == NANOARROW_OK &&
           ArrowSchemaSetName(column, spec_.columns[i].name) == NANOARROW_OK;
      column->flags &= ~ARROW_FLAG_NULLABLE;
    }
    ArrowError error;
    ok = ok && ArrowArrayViewInitFromSchema(&view_, &schema_, &error) == NANOARROW_OK &&
         ArrowIpcEncoderInit(&encoder_) == NANOARROW_OK;
    is_prepared_ = ok;
    return ok;
  }

  bool open() {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return false;
    ArrowError error;
    header_.size_bytes = 0;
    if (ArrowIpcEncoderEncodeSchema(&encoder_, &schema_, &error) == NANOARROW_OK &&
        ArrowIpcEncoderFinalizeBuffer(&encoder_, 1, &header_) == NANOARROW_OK &&
        put(header_.data, header_.size_bytes, nullptr, 0)) {
      return true;
    }
    ::close(fd_);
    ::unlink(path_.c_str());
    fd_ = -1;
    return false;
  }

  bool put(const uint8_t* header, int64_t header_bytes, const uint8_t* body, int64_t body_bytes) {
    iovec parts[2] = {{const_cast<uint8_t*>(header), static_cast<size_t>(header_bytes)},
                      {const_cast<uint8_t*>(body), static_cast<size_t>(body_bytes)}};
    if (lz4_) {
      plain_.assign(header, header + header_bytes);
      if (body_bytes > 0) plain_.insert(plain_.end(), body, body + body_bytes);
      LZ4F_preferences_t preferences{};
      preferences.frameInfo.blockSizeID = LZ4F_max256KB;
      preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
      frame_.resize(LZ4F_compressFrameBound(plain_.size(), &preferences));
      const size_t size = LZ4F_compressFrame(frame_.data(), frame_.size(), plain_.data(),
                                             plain_.size(), &preferences);
      if (LZ4F_isError(size)) return false;
      parts[0] = {frame_.data(), size};
      parts[1] = {nullptr, 0};
    }
    if (write_all(parts)) {
      length_ += static_cast<off_t>(wanted_);
      return true;
    }
    // Nothing can be done should this fail as well; the reader tolerates a torn end.
    if (::ftruncate(fd_, length_) == 0) ::lseek(fd_, length_, SEEK_SET);
    return false;
  }

  bool write_all(iovec (&parts)[2]) {
    wanted_ = parts[0].iov_len + parts[1].iov_len;
    size_t left = wanted_;
    while (left > 0) {
      const ssize_t written = ::writev(fd_, parts, 2);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      left -= static_cast<size_t>(written);
      size_t done = static_cast<size_t>(written);
      for (iovec& part : parts) {
        const size_t here = done < part.iov_len ? done : part.iov_len;
        part.iov_base = static_cast<uint8_t*>(part.iov_base) + here;
        part.iov_len -= here;
        done -= here;
      }
    }
    return true;
  }

  const TableSpec& spec_;
  std::string path_;
  bool lz4_;
  int fd_ = -1;
  off_t length_ = 0;
  size_t wanted_ = 0;
  bool is_prepared_ = false;
  ArrowArray number_array_ = array_with(2);
  ArrowArray text_array_ = array_with(3);
  ArrowSchema schema_{};
  ArrowArrayView view_{};
  ArrowIpcEncoder encoder_{};
  ArrowBuffer header_;
  ArrowBuffer body_;
  std::vector<uint8_t> plain_;
  std::vector<uint8_t> frame_;
};

class IpcSink : public Sink {
 public:
  IpcSink(std::string directory, bool lz4) : directory_(std::move(directory)), lz4_(lz4) {}

  bool write(const Columns& batch) override {
    std::unique_ptr<Stream>& stream = streams_[batch.spec().name];
    if (!stream) {
      const std::string path =
          directory_ + "/" + batch.spec().name + (lz4_ ? ".arrows.lz4" : ".arrows");
      stream.reset(new Stream(batch.spec(), path, lz4_));
    }
    return stream->write(batch);
  }

  void close() override {
    for (auto& [name, stream] : streams_) stream->close();
  }

  uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const auto& [name, stream] : streams_) sum += stream->bytes();
    return sum;
  }

 private:
  std::string directory_;
  bool lz4_;
  std::map<std::string, std::unique_ptr<Stream>> streams_;
};

}  // namespace

std::unique_ptr<Sink> make_ipc_sink(const std::string& directory, bool lz4) {
  return std::unique_ptr<Sink>(new IpcSink(directory, lz4));
}

}  // namespace gapscope
