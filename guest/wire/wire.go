// Package wire is what passes between a host and the agent inside a sandbox:
// one call per connection, in typed frames whose length is bounded. It knows
// nothing of the domain and imports only the standard library, because the
// agent is compiled from it. Both sides treat the other's frames as hostile;
// FuzzReadFrame holds the reader to that.
//
// A frame is one byte of type, four bytes of length (big endian) and that many
// bytes of payload: JSON for control frames, raw bytes for streams.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version is the protocol's version, sent in every Call. An agent refuses a
// version that it does not know.
const Version = 1

// MaxPayload is the largest payload of one frame, in bytes.
const MaxPayload = 1 << 20

// Type tells what a frame carries.
type Type byte

// The types of frame. The host sends the first group, the agent the second,
// both send File, FileData, Node and NodeEnd.
const (
	TypeCall     Type = 1 // JSON Call, first on every connection
	TypeStdin    Type = 2 // bytes for the process's standard input
	TypeStdinEOF Type = 3 // the end of it
	TypeFile     Type = 4 // JSON File: a file follows in FileData frames
	TypeFilesEnd Type = 5 // no more files
	TypeFileData Type = 6
	TypeNode     Type = 7 // JSON Node of a tree; a regular file's content follows in FileData frames
	TypeNodeEnd  Type = 8 // the end of that content

	TypeStarted Type = 16 // the process runs; JSON Started
	TypeStdout  Type = 17
	TypeStderr  Type = 18
	TypeResult  Type = 19 // bytes that the process wrote to descriptor 3
	TypeExit    Type = 20 // JSON Exit, last of an exec
	TypeError   Type = 21 // JSON Error, last of any call
	TypeOK      Type = 22 // last of any other call
	TypeExec    Type = 23 // JSON Execution, one of a list
	TypeEntry   Type = 24 // JSON Entry
	TypeChange  Type = 25 // JSON Change
)

// ErrTooLarge is returned for a frame beyond MaxPayload.
var ErrTooLarge = errors.New("frame too large")

// Frame is one frame. Its payload is only valid until the next Read.
type Frame struct {
	Type    Type
	Payload []byte
}

// Reader reads frames.
type Reader struct {
	r   io.Reader
	hdr [5]byte
	buf []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Read returns the next frame. It returns io.EOF between frames only.
func (r *Reader) Read() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.hdr[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(r.hdr[1:])
	if n > MaxPayload {
		return Frame{}, fmt.Errorf("read frame of %d bytes: %w", n, ErrTooLarge)
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Type: Type(r.hdr[0]), Payload: r.buf}, nil
}

// Write writes one frame in one call of w.Write.
func Write(w io.Writer, t Type, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("write frame of %d bytes: %w", len(payload), ErrTooLarge)
	}
	b := make([]byte, 5+len(payload))
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	copy(b[5:], payload)
	_, err := w.Write(b)
	return err
}

// WriteJSON writes one frame with v as JSON.
func WriteJSON(w io.Writer, t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame %d: %w", t, err)
	}
	return Write(w, t, b)
}

// HeaderSize is the size of a frame's header, for callers that build frames
// in place.
const HeaderSize = 5

// PutHeader writes a frame's header into b, whose payload of n bytes follows.
func PutHeader(b []byte, t Type, n int) {
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:HeaderSize], uint32(n))
}
