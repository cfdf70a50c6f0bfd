package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// tailLines returns the last n lines of a log. Both readers read the same log: tailLines counts the
// lines of whole, and skips lines of last. It therefore needs no memory per line. It closes whole,
// and closing the result closes last.
func tailLines(ctx context.Context, whole, last io.ReadCloser, n int) (io.ReadCloser, error) {
	defer whole.Close()
	lines, size, err := measureLog(ctx, whole)
	if err == nil {
		// Lines written after the measurement are not counted.
		rest := bufio.NewReaderSize(io.LimitReader(last, size), 64<<10)
		if err = skipLines(ctx, rest, lines-int64(n)); err == nil {
			return struct {
				io.Reader
				io.Closer
			}{rest, last}, nil
		}
	}
	last.Close()
	return nil, fmt.Errorf("read log: %w", err)
}

// measureLog counts the lines and bytes of r. The last line may be incomplete.
func measureLog(ctx context.Context, r io.Reader) (lines, size int64, err error) {
	buf, ended := make([]byte, 64<<10), true
	for ctx.Err() == nil {
		n, err := r.Read(buf)
		if n > 0 {
			lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
			size += int64(n)
			ended = buf[n-1] == '\n'
		}
		if errors.Is(err, io.EOF) {
			if !ended {
				lines++
			}
			return lines, size, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, context.Cause(ctx)
}

// skipLines reads n lines.
func skipLines(ctx context.Context, r *bufio.Reader, n int64) error {
	for n > 0 && ctx.Err() == nil {
		switch _, err := r.ReadSlice('\n'); {
		case err == nil:
			n--
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull): // the rest of the line follows
			return err
		}
	}
	return context.Cause(ctx)
}
