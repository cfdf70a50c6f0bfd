// Package wire implements the protocol between a host and the agent inside a
// sandbox. Each connection carries one call, in typed frames of limited length.
// The package is independent of the domain packages and imports only the
// standard library, because it is part of the agent. Each side treats the
// frames of the other side as hostile. FuzzReadFrame tests the reader
// accordingly.
//
// A frame consists of a type (one byte), a length (four bytes, big endian) and
// a payload of that length. The payload is JSON for control frames and raw
// bytes for streams.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the version of the protocol, which is sent in every Call. An agent rejects unsupported
// versions.
const Version = 1

// TimeoutSlack is the difference between the agent's own timeout of a process and
// the earlier timeout of the host.
const TimeoutSlack = 2 * time.Second

// TailTimeout limits how long the output of a program's children is forwarded after the program
// has ended. A shell's pipe has no such limit. Children that run longer keep running, but their
// later output is discarded.
const TailTimeout = 5 * time.Second

// TailSize is the maximum size of that output in bytes, so that a slow reader does not delay the
// result. For a command, it applies to each stream.
const TailSize = 2 << 20

// MaxPayload is the maximum payload of one frame, in bytes.
const MaxPayload = 1 << 20

// Type is the type of a frame.
type Type byte

// Types of frames. The host sends the first group and the agent sends the
// second. Both send File, FileData, Node and NodeEnd.
const (
	TypeCall     Type = 1 // JSON Call, the first frame of every connection
	TypeStdin    Type = 2 // bytes for the process's standard input
	TypeStdinEOF Type = 3 // the end of the standard input
	TypeFile     Type = 4 // JSON File: a file follows in FileData frames
	TypeFilesEnd Type = 5 // no more files
	TypeFileData Type = 6
	TypeNode     Type = 7 // JSON Node of a tree; a regular file's content follows in FileData frames
	TypeNodeEnd  Type = 8 // the end of a node's content

	TypeStarted Type = 16 // JSON Started: the process has started
	TypeStdout  Type = 17
	TypeStderr  Type = 18
	TypeResult  Type = 19 // bytes that the process wrote to descriptor 3
	TypeExit    Type = 20 // JSON Exit, the last frame of an exec
	TypeError   Type = 21 // JSON Error, the last frame of any call
	TypeOK      Type = 22 // the last frame of any other call
	TypeExec    Type = 23 // JSON Execution, one of a list
	TypeEntry   Type = 24 // JSON Entry
	TypeChange  Type = 25 // JSON Change
	TypeParking Type = 26 // JSON Parking: the interpreter can take its new descriptors
)

// ErrTooLarge is returned for a frame with more than MaxPayload bytes.
var ErrTooLarge = errors.New("frame too large")

// Frame is one frame. The payload is only valid until the next Read.
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

// Read returns the next frame. It returns io.EOF only between frames.
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

// Write writes one frame in a single call of w.Write.
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

// WriteJSON writes one frame with the JSON encoding of v.
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

// PutHeader writes the header of a frame with n bytes of payload into b. The
// caller appends the payload.
func PutHeader(b []byte, t Type, n int) {
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:HeaderSize], uint32(n))
}

// ProbeWord is the argument after AgentFile that makes the agent's program
// inspect the sandbox as the current user. It writes a Posture to standard
// output. The next argument, if any, is a Look as JSON.
const ProbeWord = "probe"

// Look specifies the connections and lookups that a probe makes.
type Look struct {
	// Dial lists addresses with ports to connect to over TCP. Resolve lists
	// host names to look up.
	Dial, Resolve []string `json:",omitempty"`
}

// Posture is the security state that a program inside a sandbox observes.
type Posture struct {
	UID    int
	Kernel string
	// Capabilities is the union of all capability sets of the program,
	// including the bounding set.
	Capabilities uint64
	NoNewPrivs   bool
	// Writable lists the writable mounts of the host's files.
	Writable []string `json:",omitempty"`
	// Disk is the size of the root file system, in bytes.
	Disk int64
	// Processes and OpenFiles are the hard limits.
	Processes, OpenFiles uint64
	// Interfaces lists the network interfaces except the loopback.
	Interfaces []string `json:",omitempty"`
	// Reached and Resolved list the addresses and names of Look that were
	// reached and resolved. Failed contains the errors of the others.
	Reached, Resolved []string          `json:",omitempty"`
	Failed            map[string]string `json:",omitempty"`
}
