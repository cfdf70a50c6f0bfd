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

// child is a program that builds a root file system. If the server is root, the
// child gets a process namespace, so that none of its own children outlives it.
// It also gets a mount namespace, so that its mounts do not prevent the removal
// of its directory.
type child struct {
	path, in, dir  string
	args, extraEnv []string
	namespaces     bool // use namespaces if possible
	needNamespaces bool // fail to start without namespaces

	cmd    *exec.Cmd
	ctx    func() error
	out    *lastReader // its standard output
	stderr *listener
	waited bool
	result error
}

// start starts the child. The kernel kills the child's process group when ctx
// ends or when the calling thread ends, so the caller must keep its thread
// until then.
func (c *child) start(ctx context.Context, report func(brig.Progress)) error {
	err := c.startOnce(ctx, report, c.namespaces)
	if errors.Is(err, syscall.EPERM) && c.namespaces && !c.needNamespaces {
		err = c.startOnce(ctx, report, false)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", c.path, err)
	}
	return nil
}

func (c *child) startOnce(ctx context.Context, report func(brig.Progress), namespaces bool) error {
	c.stderr = &listener{report: report}
	c.ctx = ctx.Err
	c.cmd = exec.CommandContext(ctx, c.path, c.args...)
	c.cmd.Dir = c.dir
	c.cmd.Env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + c.dir, "TMPDIR=" + c.dir, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}, c.extraEnv...)
	c.cmd.Stdin = strings.NewReader(c.in)
	c.cmd.Stderr = c.stderr
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

// wait waits for the child once and returns its error.
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
	case c.stderr.missingPackage != "":
		c.result = brig.InvalidField("packages", "there is no package %.80q", c.stderr.missingPackage).Because(c.stderr.addOutput(err))
	default:
		c.result = brig.Errorf(brig.CreationFailed, "building the image from the packages failed").
			WithHint("the server's log has the builder's output").Because(c.stderr.addOutput(err))
	}
	return c.result
}

// isCanceled reports whether the child ended because its context was canceled.
func (c *child) isCanceled() bool { return errors.Is(c.result, context.Canceled) }

// isStdoutClosed reports whether the child has closed its standard output.
func (c *child) isStdoutClosed() bool { return c.out.ended }

// lastReader records whether it reached the end of the stream.
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

// listener reads a child's standard error. It reports steps and keeps the last
// lines.
type listener struct {
	report         func(brig.Progress)
	line           []byte
	last           []string
	missingPackage string // a package that does not exist
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
		l.handleLine(string(l.line))
		l.line = l.line[:0]
	}
	return len(p), nil
}

func (l *listener) handleLine(line string) {
	const keep = 20
	if l.last = append(l.last, line); len(l.last) > keep {
		l.last = l.last[1:]
	}
	if _, name, ok := strings.Cut(line, "Unable to locate package "); ok {
		l.missingPackage = strings.TrimSpace(name)
	} else if _, names, ok := strings.Cut(line, "Couldn't find these debs: "); ok {
		l.missingPackage = strings.TrimSpace(names)
	}
	// Report only the steps to the caller, but not addresses of package sources or paths of the
	// host.
	if step, ok := strings.CutPrefix(line, "I: "); ok && !strings.Contains(step, "/") {
		l.report(brig.Progress{Step: fmt.Sprintf("%.200s", strings.ToValidUTF8(step, "?"))})
	}
}

// addOutput adds the last lines of the child's output to err, for the operator's
// log.
func (l *listener) addOutput(err error) error {
	return fmt.Errorf("%w: %s", err, strings.Join(append(l.last, string(l.line)), " | "))
}
