package fake

import (
	"bytes"
	"context"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Unpack implements brig.Instance. It does not support links or sealed trees.
func (in *instance) Unpack(ctx context.Context, dir string, o brig.UnpackOptions, source func(put func(brig.Node, io.Reader) error) error) error {
	t := tree{in}
	return source(func(n brig.Node, r io.Reader) error {
		at := brig.Path{Name: path.Join(dir, n.Path), User: o.User}
		switch n.Type {
		case brig.RegularFile:
			_, err := t.Write(ctx, at, brig.FileWrite{Mode: n.Mode}, r)
			return err
		case brig.Directory:
			if _, err := t.MakeDir(ctx, at); brig.KindOf(err) != brig.AlreadyExists {
				return err
			}
		}
		return nil
	})
}

// Pack implements brig.Instance.
func (in *instance) Pack(ctx context.Context, dir string, on func(brig.Node, io.Reader) error) error {
	t := tree{in}
	all, err := t.List(ctx, brig.Path{Name: dir}, 1000)
	if err != nil {
		return err
	}
	for _, e := range all {
		n := brig.Node{Path: e.Path[len(dir)+1:], Type: e.Type, Mode: e.Mode, Size: e.Size, Modified: e.Modified}
		if e.Type != brig.RegularFile {
			err = on(n, nil)
		} else {
			in.mu.Lock()
			data := bytes.Clone(in.files[e.Path])
			in.mu.Unlock()
			err = on(n, bytes.NewReader(data))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Changed implements brig.Instance. All files of an instance count as changed.
func (in *instance) Changed(_ context.Context, paths []string, _ time.Time, on func(brig.Node, io.Reader) error) error {
	for _, at := range paths {
		in.mu.Lock()
		files := maps.Clone(in.files)
		in.mu.Unlock()
		found := false
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if strings.ContainsRune(name, 0) || name != at && !strings.HasPrefix(name, at+"/") {
				continue
			}
			found = true
			n := brig.Node{Path: name[1:], Type: brig.RegularFile, Mode: 0o644, Size: int64(len(files[name]))}
			if err := on(n, bytes.NewReader(files[name])); err != nil {
				return err
			}
		}
		if !found {
			if err := on(brig.Node{Path: at[1:], Skipped: "nothing is there", Type: brig.OtherFile}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// Quiet implements brig.Instance. It does nothing, because commands end with
// the instance.
func (in *instance) Quiet(context.Context, time.Duration) error { return nil }
