package seal

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A sealed stream consists of a header and chunks (the STREAM construction, as in age and
// Tink). Each chunk is sealed with AES-256-GCM. Its nonce is the number of the chunk and a flag
// for the last chunk, so that chunks cannot be reordered, repeated, omitted or truncated. The
// key is derived from the caller's key, a random salt in the header, and the location.
// Therefore, a stream opens only at its location, and two streams with one key never share a
// nonce.
const (
	streamMagic = "brigseal1\n"
	saltSize    = 32
	headerSize  = len(streamMagic) + saltSize
	chunkSize   = 64 << 10
	tagSize     = 16
)

// NewKey returns a random key for streams.
func NewKey() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// chunks seals or opens the chunks of one stream in order.
type chunks struct {
	aead   cipher.AEAD
	header []byte // authenticated with every chunk
	number uint64
}

func newChunks(key, header []byte, where []string) (*chunks, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("the key has %d bytes, not %d", len(key), KeySize)
	}
	derived, err := hkdf.Key(sha256.New, key, header[len(streamMagic):], streamMagic+string(encodeLocation(where)), KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &chunks{aead: aead, header: header}, err
}

// nonce returns the nonce of the next chunk.
func (c *chunks) nonce(last bool) []byte {
	n := make([]byte, c.aead.NonceSize())
	binary.BigEndian.PutUint64(n[len(n)-9:], c.number)
	if last {
		n[len(n)-1] = 1
	}
	c.number++
	return n
}

// Writer seals a stream.
type Writer struct {
	to     io.Writer
	chunks *chunks
	buf    []byte // plaintext, at most one chunk
	out    []byte
	err    error
}

// NewWriter returns a Writer for the location named by where. The key has KeySize
// bytes. The stream is complete only after Close.
func NewWriter(to io.Writer, key []byte, where ...string) (*Writer, error) {
	header := append([]byte(streamMagic), make([]byte, saltSize)...)
	_, _ = rand.Read(header[len(streamMagic):]) // never fails
	c, err := newChunks(key, header, where)
	if err != nil {
		return nil, err
	}
	_, err = to.Write(header)
	return &Writer{to: to, chunks: c, buf: make([]byte, 0, chunkSize), out: make([]byte, 0, chunkSize+tagSize)}, err
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 && w.err == nil {
		if len(w.buf) == chunkSize { // more data follows, so this is not the last chunk
			w.flush(false)
			continue
		}
		m := min(chunkSize-len(w.buf), len(p))
		w.buf = append(w.buf, p[:m]...)
		n, p = n+m, p[m:]
	}
	return n, w.err
}

// Close writes the last chunk. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.flush(true)
	if err := w.err; err != nil {
		return err
	}
	w.err = errors.New("the stream is closed")
	return nil
}

func (w *Writer) flush(last bool) {
	w.out = w.chunks.aead.Seal(w.out[:0], w.chunks.nonce(last), w.buf, w.chunks.header)
	_, w.err = w.to.Write(w.out)
	w.buf = w.buf[:0]
}

// Reader opens a sealed stream. It returns only authentic data. The stream is
// complete only if Read has returned io.EOF.
type Reader struct {
	from   *bufio.Reader
	chunks *chunks
	buf    []byte // a sealed chunk
	plain  []byte // the rest of the current chunk
	err    error
}

// NewReader returns a Reader for a stream that a Writer with the same key and
// location wrote. Its errors wrap ErrForged if the stream was modified.
func NewReader(from io.Reader, key []byte, where ...string) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, chunkSize+tagSize), buf: make([]byte, chunkSize+tagSize)}
	header := make([]byte, headerSize)
	_, err := io.ReadFull(r.from, header)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err == nil && !bytes.HasPrefix(header, []byte(streamMagic)) {
		err = fmt.Errorf("%w: it has no header", ErrForged)
	}
	if err != nil {
		return nil, err
	}
	r.chunks, err = newChunks(key, header, where)
	return r, err
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.plain) == 0 && r.err == nil {
		r.next()
	}
	if len(r.plain) > 0 {
		n := copy(p, r.plain)
		r.plain = r.plain[n:]
		return n, nil
	}
	return 0, r.err
}

// next opens the next chunk. A chunk is the last one if no data follows it.
func (r *Reader) next() {
	n, err := io.ReadFull(r.from, r.buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		r.err = err
		return
	}
	last := err != nil
	if !last {
		if _, err := r.from.Peek(1); errors.Is(err, io.EOF) {
			last = true
		} else if err != nil {
			r.err = err
			return
		}
	}
	number := r.chunks.number
	plain, err := r.chunks.aead.Open(r.buf[:0], r.chunks.nonce(last), r.buf[:n], r.chunks.header)
	if err != nil {
		r.err = fmt.Errorf("%w: chunk %d", ErrForged, number)
		return
	}
	r.plain = plain
	if last {
		r.err = io.EOF
	}
}
