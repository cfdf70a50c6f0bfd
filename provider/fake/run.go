package fake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Exec implements brig.Instance. The commands are:
//
//	echo WORDS…     writes them
//	stderr WORDS…   writes them to stderr
//	exit N          exits with N
//	sleep SECONDS   waits
//	cat             copies stdin to stdout
//	env NAME        writes a variable's value
//	spew N          writes N bytes
//	oom             ends the machine as out of memory
//	crash           ends the machine without a reason
//	write PATH TEXT writes a file in /workspace
//	python3 … -- NAMES…  installs packages of tools
//	packet HEX      sends a packet and writes the next one that arrives
func (in *instance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res := &brig.Result{ExecID: id, Started: time.Now().UTC()}
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	if !cmd.Survive {
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	}
	if cmd.Timeout > 0 {
		defer time.AfterFunc(cmd.Timeout, func() { cancel(errTimeout) }).Stop()
	}
	if sio.Started != nil {
		sio.Started(id)
	}
	remembered := &brig.Execution{Command: cmd, Result: *res}
	in.mu.Lock()
	in.execs = append(in.execs, remembered)
	in.mu.Unlock()

	code, err := in.run(runCtx, cmd, sio)
	res.Duration = time.Since(res.Started)
	switch {
	case context.Cause(runCtx) == errTimeout:
		res.Done, res.TimedOut, res.ExitCode = true, true, 124
	case ctx.Err() != nil:
		return res, context.Cause(ctx)
	case err != nil:
		return res, err
	default:
		res.Done, res.ExitCode = true, code
	}
	select {
	case <-in.done:
		if in.Exit().OOMKilled {
			res.Done, res.OOMKilled, res.ExitCode = true, true, 137
		} else if in.spec.Command == nil {
			return res, brig.Errorf(brig.FailedPrecondition, "the sandbox ended while the command ran (%s)", in.Exit().Reason)
		}
	default:
	}
	in.mu.Lock()
	remembered.Result = *res
	in.mu.Unlock()
	return res, nil
}

var errTimeout = fmt.Errorf("out of time")

// floodChunk is the number of bytes per write of spew.
const floodChunk = 32 << 10

// run interprets one command and returns its exit code.
func (in *instance) run(ctx context.Context, cmd brig.Command, sio brig.IO) (int, error) {
	argv := cmd.Argv
	if cmd.Shell != "" {
		argv = strings.Fields(cmd.Shell)
	}
	args := argv[1:]
	switch argv[0] {
	case "echo":
		_, err := fmt.Fprintln(sio.Stdout, strings.Join(args, " "))
		return 0, err
	case "stderr":
		_, err := fmt.Fprintln(sio.Stderr, strings.Join(args, " "))
		return 0, err
	case "exit":
		n, err := strconv.Atoi(args[0])
		return n, err
	case "sleep":
		secs, _ := strconv.ParseFloat(args[0], 64)
		select {
		case <-time.After(time.Duration(secs * float64(time.Second))):
		case <-ctx.Done():
		case <-in.done:
		}
		return 0, nil
	case "cat":
		if sio.Stdin == nil {
			return 0, nil
		}
		_, err := io.Copy(sio.Stdout, sio.Stdin)
		return 0, err
	case "env":
		v, ok := cmd.Env[args[0]]
		if !ok {
			v = in.spec.Env[args[0]]
		}
		_, err := fmt.Fprintln(sio.Stdout, v)
		return 0, err
	case "spew":
		n, _ := strconv.Atoi(args[0])
		for err := error(nil); n > 0 && err == nil; n -= floodChunk {
			if _, err = sio.Stdout.Write(bytes.Repeat([]byte("x"), min(n, floodChunk))); err != nil {
				return 0, err
			}
		}
		return 0, nil
	case "write":
		return 0, in.Put(ctx, "/workspace", []brig.File{{Path: path.Clean(args[0]), Data: []byte(args[1])}})
	case "python3":
		return 0, in.install(ctx, args[slices.Index(args, "--")+1:])
	case wire.AgentFile:
		return in.probe(cmd, args, sio.Stdout)
	case "packet":
		return in.exchange(ctx, args[0], sio.Stdout)
	case "oom":
		in.finish(brig.OutOfMem, 137)
		return 0, nil
	case "crash":
		in.finish(brig.Crashed, 137)
		return 0, nil
	}
	return 0, brig.InvalidField("command", "no program %q", argv[0])
}
