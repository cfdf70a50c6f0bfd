package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/supervise"
)

// request is a provider's request to a shim. Each connection carries one
// request, as one JSON line.
type request struct {
	Op     string          // "dial", "watch", "lease", "own", "keep", "kept", "parking", "freeze", "thaw", "begin", "over", "stop", "sentry", "refused", "save", "savefiles"
	Lease  time.Time       `json:",omitzero"`
	Grace  time.Duration   `json:",omitzero"`
	Reason brig.ExitReason `json:",omitempty"`
	Linger bool            `json:",omitempty"` // for "begin": whether the sandbox outlives its main program
	// ID and Note describe a kept process. An empty note removes the process.
	ID   string `json:",omitempty"`
	Note []byte `json:",omitempty"`
	// Carried means that the agent holds the descriptors of the process. The shim
	// closes its own copies.
	Carried bool         `json:",omitempty"`
	Save    *saveRequest `json:",omitempty"`
}

// response is the response to a request, as one JSON line. The response to "dial"
// carries a descriptor. The request "kept" has one response per process, with
// its descriptors, and then a response without an ID.
type response struct {
	Error string `json:",omitempty"`
	ID    string `json:",omitempty"`
	Note  []byte `json:",omitempty"`
	PID   int    `json:",omitempty"` // the sentry's process ID
	// Carried means that the agent holds the process's descriptors, so the
	// response carries none.
	Carried bool `json:",omitempty"`
	// Parking means that the agent may hold the process's descriptors, because
	// a server was parking the process.
	Parking bool `json:",omitempty"`
	// Holders are the processes that prevent the save.
	Holders []wire.Holder `json:",omitempty"`
	// Refused is nil if the shim does not count refusals.
	Refused *brig.Refusals `json:",omitempty"`
}

// maxRequest is the maximum length of a request, in bytes. It is large because
// a note may contain the whole environment of an interpreter. oneRead is a
// buffer size that fits most requests.
const (
	maxRequest = 32 << 20
	oneRead    = 8192
)

// openRequest sends a request to the shim and returns the connection for the
// response.
func (l layout) openRequest(ctx context.Context, r request, fds ...int) (*net.UnixConn, error) {
	p, done, err := supervise.SocketPath(l.dir, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", p)
	if err != nil {
		return nil, fmt.Errorf("reach shim: %w", err)
	}
	uc := c.(*net.UnixConn)
	b, err := json.Marshal(r)
	if err == nil {
		err = sendLine(uc, b, fds)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("ask shim: %w", err)
	}
	return uc, nil
}

// sendRequest sends a request and returns the error in its response, if any.
func (l layout) sendRequest(ctx context.Context, r request, fds ...int) error {
	_, err := l.call(ctx, r, fds...)
	return err
}

// call sends a request and returns its response.
func (l layout) call(ctx context.Context, r request, fds ...int) (a response, err error) {
	c, err := l.openRequest(ctx, r, fds...)
	if err != nil {
		return a, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	line, err := bufio.NewReaderSize(c, oneRead).ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("ask shim: %w", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("decode shim's answer: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("shim: %w", shimError(a.Error))
	}
	return a, nil
}

// shimError is an error that a shim reports.
type shimError string

func (e shimError) Error() string { return string(e) }

// dialAgent requests a connection to the agent from the shim.
func (l layout) dialAgent(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := l.openRequest(ctx, request{Op: "dial"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	buf, oob := make([]byte, oneRead), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, fmt.Errorf("ask shim for the agent: %w", err)
	}
	fd, err := descriptor(oob[:oobn])
	if err != nil {
		return nil, fmt.Errorf("ask shim for the agent: %s: %w", buf[:n], err)
	}
	return connOf(fd)
}

// descriptor returns the single descriptor of a control message.
func descriptor(oob []byte) (int, error) {
	fds := descriptors(oob)
	if len(fds) == 0 {
		return -1, errors.New("no descriptor")
	}
	for _, fd := range fds[1:] {
		unix.Close(fd)
	}
	return fds[0], nil
}

// descriptors returns all descriptors of a control message.
func descriptors(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var out []int
	for _, m := range msgs {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			out = append(out, fds...)
		}
	}
	for _, fd := range out {
		unix.CloseOnExec(fd)
	}
	return out
}

func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "agent")
	defer f.Close()
	return net.FileConn(f)
}

// send writes a response, with descriptors if there are any.
func send(c *net.UnixConn, a response, fds ...int) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return sendLine(c, b, fds)
}

// sendLine sends a line, with descriptors attached to its beginning.
func sendLine(c *net.UnixConn, line []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	line = append(line, '\n')
	n, _, err := c.WriteMsgUnix(line, oob, nil)
	if err == nil && n < len(line) {
		_, err = c.Write(line[n:])
	}
	return err
}
