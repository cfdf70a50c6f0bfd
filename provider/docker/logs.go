package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/brig-run/brig/internal/journal"
)

// copyLog copies the main program's output from the engine's log into the
// journal. It continues at the position that this or an earlier server has
// stored.
func (i *instance) copyLog(ctx context.Context, follow bool) {
	for {
		err := i.copyLogOnce(ctx, follow)
		if err == nil && follow {
			// Read the rest without following, because the engine may end a
			// followed log before its last lines.
			err, follow = i.copyLogOnce(ctx, false), false
		}
		if err == nil || isNotFound(err) || !follow {
			return
		}
		if ctx.Err() != nil {
			return
		}
		i.p.Log.Warn("the Docker Engine no longer sends a sandbox's log", "sandbox", i.id, "err", err)
		select {
		case <-i.done:
			return
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (i *instance) copyLogOnce(ctx context.Context, follow bool) error {
	position, err := os.OpenFile(i.f.path(seenFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open what was seen of a log: %w", err)
	}
	defer position.Close()
	o := client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: follow}
	b, err := io.ReadAll(io.LimitReader(position, 100))
	if err != nil {
		return fmt.Errorf("read what was seen of a log: %w", err)
	}
	if at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(b))); err == nil {
		next := at.Add(1)
		o.Since = fmt.Sprintf("%d.%09d", next.Unix(), next.Nanosecond())
	}
	r, err := i.p.api.ContainerLogs(ctx, i.container, o)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := journal.Open(i.f.path(logFile))
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // the data is already written
	for br := bufio.NewReader(r); ; {
		at, text, err := entry(br)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		// The text always has the same length, so that each write replaces the
		// previous text completely.
		if _, err := position.WriteAt([]byte(at.UTC().Format("2006-01-02T15:04:05.000000000Z\n")), 0); err != nil {
			return err
		}
	}
}

// maxEntry is the maximum length of an entry in an engine's log in bytes, with
// a margin.
const maxEntry = 1 << 20

// entry reads one entry of the engine's log: a header as in an exec's stream,
// the time, and a line or a part of one.
func entry(r io.Reader) (at time.Time, text []byte, err error) {
	var h [8]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return at, nil, err
	}
	n := binary.BigEndian.Uint32(h[4:])
	if n > maxEntry {
		return at, nil, fmt.Errorf("an entry of %d bytes in the engine's log", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return at, nil, err
	}
	stamp, text, ok := bytes.Cut(b, []byte(" "))
	if at, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil || !ok {
		return at, nil, errors.New("an entry without its time in the engine's log")
	}
	return at, text, nil
}
