package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Log implements brig.Instance.
func (i *instance) Log(p []byte) error {
	w, err := openLog(i.l)
	if err != nil {
		return err
	}
	_, err = w.Write(p)
	return errors.Join(err, w.Close())
}

// Logs implements brig.Instance.
func (i *instance) Logs(context.Context) (io.ReadCloser, error) {
	var files files
	for _, name := range []string{oldLogFile, logFile} {
		f, err := os.Open(i.l.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open log: %w", err), files.Close())
		}
		files = append(files, f)
	}
	return struct {
		io.Reader
		io.Closer
	}{files.reader(), files}, nil
}

type files []*os.File

func (f files) reader() io.Reader {
	var rs []io.Reader
	for _, x := range f {
		rs = append(rs, x)
	}
	return io.MultiReader(rs...)
}

// Close implements io.Closer.
func (f files) Close() error {
	var errs []error
	for _, x := range f {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
