package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// request is what a provider asks on a connection to a shim, one JSON line.
type request struct {
	Op     string          // "dial", "watch", "lease", "own", "keep", "kept", "freeze", "thaw", "begin", "over", "stop", "sentry"
	Lease  time.Time       `json:",omitzero"`
	Grace  time.Duration   `json:",omitzero"`
	Reason brig.ExitReason `json:",omitempty"`
	Linger bool            `json:",omitempty"` // of a main program that begins
	// ID and Note are of a process that is kept; an empty note drops it.
	ID   string `json:",omitempty"`
	Note []byte `json:",omitempty"`
}

// answer is what comes back, one JSON line; a dial's carries a descriptor.
// What is kept comes as an answer for each process, with its descriptors, and
// one without an ID at the end.
type answer struct {
	Error string `json:",omitempty"`
	ID    string `json:",omitempty"`
	Note  []byte `json:",omitempty"`
	PID   int    `json:",omitempty"` // of the sentry
}

// maxRequest is the longest request, in bytes: a note may have the whole
// environment of an interpreter in it. Most fit into one read.
const (
	maxRequest = 32 << 20
	oneRead    = 8192
)

// socketPath returns a path of the shim's socket that is short enough for a
// socket's address, however deep the data folder is.
func (l layout) socketPath() (string, func(), error) {
	p := l.path(socketFile)
	if len(p) < 100 {
		return p, func() {}, nil
	}
	d, err := os.Open(l.dir)
	if err != nil {
		return "", nil, fmt.Errorf("open %s: %w", l.dir, err)
	}
	return "/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + socketFile, func() { d.Close() }, nil
}

// ask sends a request to the shim and returns the connection, on which an
// answer follows.
func (l layout) ask(ctx context.Context, r request, fds ...int) (*net.UnixConn, error) {
	p, done, err := l.socketPath()
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

// tell sends a request and waits for its answer.
func (l layout) tell(ctx context.Context, r request, fds ...int) error {
	c, err := l.ask(ctx, r, fds...)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	line, err := bufio.NewReaderSize(c, oneRead).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("ask shim: %w", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("decode shim's answer: %w", err)
	}
	if a.Error != "" {
		return fmt.Errorf("shim: %s", a.Error)
	}
	return nil
}

// dialAgent asks the shim for a connection to the agent.
func (l layout) dialAgent(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := l.ask(ctx, request{Op: "dial"})
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

// descriptor takes the one descriptor out of a control message.
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

// descriptors takes all descriptors out of a control message.
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

// send writes an answer, with descriptors if there are any.
func send(c *net.UnixConn, a answer, fds ...int) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return sendLine(c, b, fds)
}

// sendLine sends a line, with descriptors at its beginning.
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
