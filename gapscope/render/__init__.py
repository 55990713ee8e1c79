"""Renderers: a document goes in, text comes out; nothing is computed here."""
