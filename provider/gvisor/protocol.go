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
	Op     string          // "dial", "watch", "lease", "stop"
	Lease  time.Time       `json:",omitzero"`
	Grace  time.Duration   `json:",omitzero"`
	Reason brig.ExitReason `json:",omitempty"`
}

// answer is what comes back, one JSON line; a dial's carries a descriptor.
type answer struct {
	Error string `json:",omitempty"`
}

// maxRequest is the longest request, in bytes.
const maxRequest = 4096

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
func (l layout) ask(ctx context.Context, r request) (*net.UnixConn, error) {
	p, done, err := l.socketPath()
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", p)
	if err != nil {
		return nil, fmt.Errorf("reach shim: %w", err)
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = c.Write(append(b, '\n'))
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("ask shim: %w", err)
	}
	return c.(*net.UnixConn), nil
}

// tell sends a request and waits for its answer.
func (l layout) tell(ctx context.Context, r request) error {
	c, err := l.ask(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	line, err := bufio.NewReaderSize(c, maxRequest).ReadBytes('\n')
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
	buf, oob := make([]byte, maxRequest), make([]byte, unix.CmsgSpace(4))
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
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, err
	}
	for _, m := range msgs {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) > 0 {
			unix.CloseOnExec(fds[0])
			return fds[0], nil
		}
	}
	return -1, errors.New("no descriptor")
}

func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "agent")
	defer f.Close()
	return net.FileConn(f)
}

// send writes an answer, with a descriptor if fd is not negative.
func send(c *net.UnixConn, a answer, fd int) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	_, _, err = c.WriteMsgUnix(append(b, '\n'), oob, nil)
	return err
}
