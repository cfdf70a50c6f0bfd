//go:build bench

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// hostPython is the Python interpreter of this machine, which the host image also contains.
const hostPython = "/usr/bin/python3"

// peer is a method of running Python without Brig.
type peer struct {
	name          string
	command       func(ctx context.Context, args ...string) (*exec.Cmd, error)
	absenceReason string // why the peer is not available; empty if it is
	usesDaemon    bool   // its CPU time is used by a daemon, and so cannot be measured
}

// These are the names of the peers in the report, and the image that docker runs.
const (
	barePython  = "bare python3"
	runscRun    = "runsc run"
	dockerRun   = "docker run"
	dockerImage = "python:3.11-slim"
)

// openPeers returns the peers of a rig: a bare process, runsc and docker.
func (g *rig) openPeers() (bare, runsc, docker *peer, err error) {
	bare = &peer{name: barePython, command: func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, hostPython, args...), nil
	}}
	docker = &peer{name: dockerRun, usesDaemon: true, command: func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		args = append([]string{"run", "--rm", "--interactive", "--network=none", dockerImage, "python3"}, args...)
		return exec.CommandContext(ctx, "docker", args...), nil
	}}
	if err := exec.CommandContext(g.ctx, "docker", "image", "inspect", dockerImage).Run(); err != nil {
		docker.absenceReason = "no daemon, or no image " + dockerImage
	}
	runsc, err = g.openRunsc()
	return bare, runsc, docker, err
}

// openRunsc returns a peer that runs gVisor's own command line with the rig's engine and the files
// of its host image.
func (g *rig) openRunsc() (*peer, error) {
	img, err := g.engine.GetImage(g.ctx, brig.HostImage)
	if err != nil {
		return nil, err
	}
	engineFile, err := unpack(g.dir, engineName)
	if err != nil {
		return nil, err
	}
	var n atomic.Int64
	command := func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		id := fmt.Sprintf("bench-%d-%d", os.Getpid(), n.Add(1))
		bundle := filepath.Join(g.dir, "runsc", id)
		if err := g.writeBundle(bundle, img.Digest, append([]string{hostPython}, args...)); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, engineFile, "--root="+filepath.Join(g.dir, "runsc", "state"), "--network=none", "--ignore-cgroups",
			"--overlay2=root:memory", "--host-settings=ignore", "--gofer-network-namespace=host",
			fmt.Sprintf("--rootless=%t", os.Geteuid() != 0), "run", "--bundle="+bundle, id)
		cmd.Args[0] = "runsc"
		return cmd, nil
	}
	return &peer{name: runscRun, command: command}, nil
}

// writeBundle writes an OCI bundle for runsc.
func (g *rig) writeBundle(dir, digest string, argv []string) error {
	root, err := g.parts.images.Root(digest)
	if err != nil {
		return err
	}
	mounts := []map[string]any{{"destination": "/proc", "type": "proc"}}
	for _, b := range root.Binds {
		mounts = append(mounts, map[string]any{
			"destination": b.Target, "type": "bind", "source": b.Source, "options": []string{"rbind", "ro"},
		})
	}
	var namespaces []map[string]string
	for _, n := range []string{"pid", "network", "mount", "ipc", "uts"} {
		namespaces = append(namespaces, map[string]string{"type": n})
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.0", "hostname": "runsc", "root": map[string]string{"path": root.Dir}, "mounts": mounts,
		"process": map[string]any{
			"user": map[string]int{"uid": 1000, "gid": 1000}, "args": argv, "env": []string{"PATH=/usr/bin:/bin"},
			"cwd": "/", "noNewPrivileges": true,
		},
		"linux": map[string]any{"namespaces": namespaces},
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write runsc's bundle: %w", err)
	}
	return nil
}

// runOneShot measures one run of the program that all contenders run.
func (p *peer) runOneShot(ctx context.Context) (sample, error) {
	cmd, err := p.command(ctx, "-c", benchProgram)
	if err != nil {
		return sample{}, err
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	wall, err := clock(cmd.Run)
	if err != nil || out.String() != benchOutput {
		return sample{}, fmt.Errorf("%s printed %q: %w", p.name, out.String(), err)
	}
	s := sample{wall: wall}
	if !p.usesDaemon {
		s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return s, nil
}

// repl is a running interpreter that evaluates expressions from its standard input.
type repl struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// replProgram is a Python program that evaluates every line of its input and prints the value.
const replProgram = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"

// startREPL starts an interpreter. The caller must close it.
func (p *peer) startREPL(ctx context.Context) (*repl, error) {
	cmd, err := p.command(ctx, "-c", replProgram)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	r := &repl{cmd: cmd, in: in, out: bufio.NewReader(out)}
	if _, err := r.measureEval("0", "0"); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// measureEval evaluates an expression and compares its value with want.
func (r *repl) measureEval(expression, want string) (time.Duration, error) {
	return clock(func() error {
		if _, err := io.WriteString(r.in, expression+"\n"); err != nil {
			return err
		}
		line, err := r.out.ReadString('\n')
		if err == nil && strings.TrimSpace(line) != want {
			err = fmt.Errorf("the interpreter answered %q", line)
		}
		return err
	})
}

// close ends the interpreter. It ignores the exit status.
func (r *repl) close() {
	r.in.Close()
	_ = r.cmd.Wait()
}
