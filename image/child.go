package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig"
)

// child is the program that builds a root file system. As root it gets a
// process namespace, so that none of its own children outlives it, and a mount
// namespace, so that nothing that it mounts is in the way of deleting its folder.
type child struct {
	path, in, dir  string
	args, extraEnv []string
	namespaces     bool // try to have them
	needNamespaces bool // do not start without them

	cmd    *exec.Cmd
	ctx    func() error
	out    *lastReader // its standard output
	said   *listener
	waited bool
	result error
}

// start starts the child. It is killed, with its whole group, when ctx ends,
// and when the thread of the caller ends, which has to keep it until then.
func (c *child) start(ctx context.Context, report func(brig.Progress)) error {
	err := c.try(ctx, report, c.namespaces)
	if errors.Is(err, syscall.EPERM) && c.namespaces && !c.needNamespaces {
		err = c.try(ctx, report, false)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", c.path, err)
	}
	return nil
}

func (c *child) try(ctx context.Context, report func(brig.Progress), namespaces bool) error {
	c.said = &listener{report: report}
	c.ctx = ctx.Err
	c.cmd = exec.CommandContext(ctx, c.path, c.args...)
	c.cmd.Dir = c.dir
	c.cmd.Env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + c.dir, "TMPDIR=" + c.dir, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}, c.extraEnv...)
	c.cmd.Stdin = strings.NewReader(c.in)
	c.cmd.Stderr = c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if namespaces {
		c.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		c.cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.WaitDelay = 5 * time.Second
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.out = &lastReader{r: out}
	return c.cmd.Start()
}

// wait waits for the child, once, and says what went wrong with it.
func (c *child) wait() error {
	if c.waited {
		return c.result
	}
	c.waited = true
	err := c.cmd.Wait()
	switch {
	case err == nil:
	case c.ctx() != nil:
		c.result = fmt.Errorf("build image: %w", c.ctx())
	case c.said.missing != "":
		c.result = brig.InvalidField("packages", "there is no package %.80q", c.said.missing).Because(c.said.cause(err))
	default:
		c.result = brig.Errorf(brig.CreationFailed, "the packages could not be put together").
			WithHint("the server's log has what the builder said").Because(c.said.cause(err))
	}
	return c.result
}

// stopped reports whether the child ended because it was told to.
func (c *child) stopped() bool { return errors.Is(c.result, context.Canceled) }

// silent reports whether the child has closed its standard output.
func (c *child) silent() bool { return c.out.ended }

// lastReader remembers whether it came to the end.
type lastReader struct {
	r     io.Reader
	ended bool
}

// Read implements io.Reader.
func (l *lastReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.ended = l.ended || errors.Is(err, io.EOF)
	return n, err
}

// listener is a child's standard error: it reports steps, and keeps the end.
type listener struct {
	report  func(brig.Progress)
	line    []byte
	last    []string
	missing string // a package that there is not
}

// Write implements io.Writer.
func (l *listener) Write(p []byte) (int, error) {
	const longest = 4096
	for _, b := range p {
		if b != '\n' {
			if len(l.line) < longest {
				l.line = append(l.line, b)
			}
			continue
		}
		l.heard(string(l.line))
		l.line = l.line[:0]
	}
	return len(p), nil
}

func (l *listener) heard(line string) {
	const keep = 20
	if l.last = append(l.last, line); len(l.last) > keep {
		l.last = l.last[1:]
	}
	if _, name, ok := strings.Cut(line, "Unable to locate package "); ok {
		l.missing = strings.TrimSpace(name)
	} else if _, names, ok := strings.Cut(line, "Couldn't find these debs: "); ok {
		l.missing = strings.TrimSpace(names)
	}
	// The caller gets the steps only: no address of a package source, and no
	// path of this machine.
	if step, ok := strings.CutPrefix(line, "I: "); ok && !strings.Contains(step, "/") {
		l.report(brig.Progress{Step: fmt.Sprintf("%.200s", strings.ToValidUTF8(step, "?"))})
	}
}

// cause is what the child said at its end, for the operator's log.
func (l *listener) cause(err error) error {
	return fmt.Errorf("%w: %s", err, strings.Join(append(l.last, string(l.line)), " | "))
}
