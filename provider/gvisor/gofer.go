//go:build !shim

package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/brig-run/brig/internal/cgroup"
)

// cgoEnabled reports whether this binary uses cgo and therefore cannot start
// itself in an empty root.
const cgoEnabled = config.CgoEnabled

// goferKernel is a kernel that gVisor's own library has started, with a gofer
// that serves the image's files.
type goferKernel struct {
	conf *config.Config
	c    *container.Container
}

// withGofer starts a kernel with gVisor's own library.
func withGofer(l layout, o *order, g *cgroup.Group, d donatedFiles) (_ kernel, err error) {
	// gVisor returns important messages as errors, so its log is discarded.
	log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	leave := func() error { return nil }
	join := g != nil // gVisor joins the group itself and leaves it again
	if g != nil {
		moved, err := g.Enter()
		switch {
		case err == nil:
			leave, join = sync.OnceValue(moved), false
			defer func() { _ = leave() }() // the error is returned below, unless the start fails
		case !errors.Is(err, errors.ErrUnsupported):
			return nil, err
		}
	}
	k := &goferKernel{}
	if k.conf, err = o.runscConfig(l, join); err != nil {
		return nil, err
	}
	var spec specs.Spec
	if ok, err := l.readJSON(configFile, &spec); err != nil || !ok {
		return nil, errors.Join(errors.New("no configuration"), err)
	}
	k.c, err = container.New(k.conf, container.Args{
		ID: o.ID, Spec: &spec, BundleDir: l.bundleDir(), Attached: true,
		PassFiles: map[int]*os.File{agentFD: d.control}, ExecFile: d.agent,
	})
	if err != nil {
		return nil, fmt.Errorf("create gvisor sandbox: %w", err)
	}
	if err := leave(); err != nil {
		return nil, errors.Join(err, k.c.Destroy())
	}
	return k, nil
}

func (k *goferKernel) pid() int { return max(k.c.SandboxPid(), 0) }

func (k *goferKernel) kill() bool {
	if pid := k.pid(); pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return false // the gofer is still running
}

func (k *goferKernel) run() error {
	if err := k.c.Start(k.conf); err != nil {
		return fmt.Errorf("start gvisor sandbox: %w", err)
	}
	return nil
}

func (k *goferKernel) wait() unix.WaitStatus {
	ws, err := k.c.Wait()
	if err != nil {
		ws = unix.WaitStatus(unix.SIGKILL)
	}
	return ws
}

func (k *goferKernel) pause() error  { return k.c.Sandbox.Pause(k.c.ID) }
func (k *goferKernel) resume() error { return k.c.Sandbox.Resume(k.c.ID) }

func (k *goferKernel) destroy() error {
	if err := k.c.Destroy(); err != nil {
		return fmt.Errorf("destroy gvisor sandbox: %w", err)
	}
	return nil
}

// runscConfig returns gVisor's configuration.
func (o *order) runscConfig(l layout, join bool) (*config.Config, error) {
	fs := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(fs)
	for k, v := range o.flags(l, join) {
		if err := fs.Set(k, v); err != nil {
			return nil, fmt.Errorf("set gvisor flag %s: %w", k, err)
		}
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("configure gvisor: %w", err)
	}
	return conf, nil
}
