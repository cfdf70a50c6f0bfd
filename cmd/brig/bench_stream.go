//go:build bench

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

func (c benchCommands) stream() *cobra.Command {
	b := &streamBench{}
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Measure how fast output and files go through",
		Args:  cobra.NoArgs,
		RunE:  c.wrapBenchmark(b.run),
	}
	cmd.Flags().IntVarP(&b.rounds, "rounds", "n", 5, "rounds of each")
	cmd.Flags().IntVar(&b.output, "output", 256, "how much is written to standard output, in `MiB`")
	return cmd
}

// streamBench measures the throughput of every method of transferring bytes.
type streamBench struct {
	rounds, output int
	rig            *rig
	bare           *peer
	content        []byte // the content of the file that is transferred
}

// fileSize is the size of the transferred file, which is the maximum size of an artifact.
const fileSize = brig.MaxArtifactSize

// mover is one method of transferring bytes.
type mover struct {
	name string
	size int
	move func() (time.Duration, error)
	peer *mover
	samples
}

func (b *streamBench) run(ctx context.Context, w *workbench) (err error) {
	if b.rig, err = w.newRig(ctx, newPoolOptions(1)); err != nil {
		return err
	}
	defer b.rig.close()
	if b.bare, _, _, err = b.rig.openPeers(); err != nil {
		return err
	}
	b.content = bytes.Repeat([]byte("0123456789abcdef"), fileSize/16)
	contenders := b.movers(ctx)
	say, done := w.newProgress()
	defer done()
	for round := range b.rounds + 1 {
		for _, m := range contenders {
			say(brig.Progress{Step: m.name, Done: int64(round), Total: int64(b.rounds + 1)})
			s, err := b.rig.measure(m.move)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if round > 0 { // the first round is a warm-up
				m.samples = append(m.samples, s)
			}
		}
	}
	r := &report{Bench: "stream", About: fmt.Sprintf("%d rounds, in turns; MB are 10^6 bytes, and the time is that of the whole request", b.rounds)}
	for _, m := range contenders {
		row := r.row(m.name).addTimes(m.samples).set("mb_per_s", m.rate())
		if m.peer != nil {
			row.peer = m.peer.name
			row.set("ratio", m.rate()/m.peer.rate())
		}
	}
	return w.printLoad(r)
}

// rate returns the median throughput in MB/s.
func (m *mover) rate() float64 { return float64(m.size) / 1e6 / m.median(wallOf).Seconds() }

func (b *streamBench) movers(ctx context.Context) []*mover {
	size := b.output * brig.MiB
	writer := fmt.Sprintf("import os\nb = b'0123456789abcde\\n' * 4096\nfor _ in range(%d): os.write(1, b)", size/(64*brig.KiB))
	head := &mover{name: "head -c", size: size, move: func() (time.Duration, error) {
		return b.measurePipe(exec.CommandContext(ctx, "head", "-c", fmt.Sprint(size), "/dev/zero"), size)
	}}
	python := &mover{name: barePython + ", stdout", size: size, peer: head, move: func() (time.Duration, error) {
		return b.measurePipe(exec.CommandContext(ctx, hostPython, "-c", writer), size)
	}}
	stdout := &mover{name: "brig, stdout as NDJSON", size: size, peer: head, move: func() (time.Duration, error) {
		return b.measureStdout(writer, size)
	}}
	dir := filepath.Join(b.rig.dir, "files")
	in := fmt.Sprintf("import os\nassert len(open('in', 'rb').read()) == %d\nprint(6*7)", fileSize)
	bareIn := &mover{name: barePython + ", a file in", size: fileSize, move: func() (time.Duration, error) {
		return b.measureBareFile(ctx, dir, in, "in", "")
	}}
	brigIn := &mover{name: "brig, a file in", size: fileSize, peer: bareIn, move: func() (time.Duration, error) { return b.measureFileIn(in) }}
	out := fmt.Sprintf("import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/out.csv', 'wb').write(b'0123456789abcdef' * %d)\nprint(6*7)", fileSize/16)
	bareOut := &mover{name: barePython + ", a file out", size: fileSize, move: func() (time.Duration, error) {
		return b.measureBareFile(ctx, dir, out, "", "artifacts/out.csv")
	}}
	brigOut := &mover{name: "brig, an artifact out", size: fileSize, peer: bareOut, move: func() (time.Duration, error) { return b.measureFileOut(out) }}
	return []*mover{head, python, stdout, bareIn, brigIn, bareOut, brigOut}
}

// measurePipe measures how long it takes to read the whole output of a program.
func (b *streamBench) measurePipe(cmd *exec.Cmd, size int) (time.Duration, error) {
	return clock(func() error {
		r, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		// The wrappers hide ReadFrom and WriteTo, so that CopyBuffer always
		// uses the buffer.
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64*brig.KiB))
		if waitErr := cmd.Wait(); err == nil {
			err = waitErr
		}
		return b.checkSize(int(n), size, err)
	})
}

// measureStdout runs a one-shot program and decodes its streamed output, as a client does.
func (b *streamBench) measureStdout(program string, size int) (time.Duration, error) {
	return clock(func() error {
		n := 0
		in := v1.RunRequest{Language: "python", Code: program, Stream: true, TimeoutMS: time.Hour.Milliseconds()}
		err := b.rig.sendStream("/v1/run", in, func(event string, line []byte) error {
			if event != v1.EventStdout {
				return nil
			}
			var part v1.Chunk
			err := json.Unmarshal(line, &part)
			n += len(part.Data) + len(part.DataB64)
			return err
		})
		return b.checkSize(n, size, err)
	})
}

func (b *streamBench) checkSize(n, size int, err error) error {
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came, not %d", n, size)
	}
	return err
}

// measureBareFile runs a bare process that reads or writes a file.
func (b *streamBench) measureBareFile(ctx context.Context, dir, program, in, out string) (time.Duration, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	return clock(func() error {
		if in != "" {
			if err := os.WriteFile(filepath.Join(dir, in), b.content, 0o600); err != nil {
				return err
			}
		}
		cmd := exec.CommandContext(ctx, hostPython, "-c", program)
		cmd.Dir = dir
		if err := cmd.Run(); err != nil || out == "" {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, out))
		return b.checkSize(len(got), fileSize, err)
	})
}

func (b *streamBench) measureFileIn(program string) (time.Duration, error) {
	return b.transfer(program, v1.Files{{Path: "in", ContentB64: b.content}}, func(*v1.RunAnswer) int { return fileSize })
}

func (b *streamBench) measureFileOut(program string) (time.Duration, error) {
	return b.transfer(program, nil, func(o *v1.RunAnswer) int {
		if len(o.Artifacts) == 0 {
			return 0
		}
		return len(o.Artifacts[0].ContentB64)
	})
}

// transfer runs a one-shot program that transfers the whole file, and checks that it succeeds.
func (b *streamBench) transfer(program string, files v1.Files, size func(*v1.RunAnswer) int) (time.Duration, error) {
	return clock(func() error {
		var out v1.RunAnswer
		err := b.rig.call(http.MethodPost, "/v1/run", v1.RunRequest{Language: "python", Code: program, Files: files}, &out)
		if err == nil && out.Stdout != benchOutput {
			err = fmt.Errorf("brig printed %q, %q, %v", out.Stdout, out.Stderr, out.Error)
		}
		return b.checkSize(size(&out), fileSize, err)
	})
}
