package engine

import (
	"context"
	"io"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/volume"
)

// volumeFiles implements brig.VolumeFiles for one volume, behind the gate.
type volumeFiles struct {
	vs  *volumes
	ref string
}

// VolumeFiles implements brig.Service.
func (vs *volumes) VolumeFiles(ref string) brig.VolumeFiles { return volumeFiles{vs, ref} }

// withFiles authorizes a call on a path of the volume and calls g.
func (f volumeFiles) withFiles(ctx context.Context, op brig.Op, path string, g func(files *volume.Files) error) error {
	_, err := f.keepFiles(ctx, op, path, g)
	return err
}

// keepFiles is like withFiles, but keeps the volume mounted until release is called, if it succeeds.
func (f volumeFiles) keepFiles(ctx context.Context, op brig.Op, path string, g func(files *volume.Files) error) (release func(), err error) {
	note := func(v *call) {
		v.addDetail(brig.DetailVolume, truncate(f.ref))
		if op.Changes {
			v.addDetail(brig.DetailPath, brig.Clip(path, maxDir))
		}
	}
	err = f.vs.doWithDetails(ctx, op, "", note, func(v *call) error {
		if err := f.vs.checkVolumesKept(); err != nil {
			return err
		}
		x, err := f.vs.Store.GetVolume(ctx, v.actor.Tenant, f.ref)
		if err != nil {
			return err
		}
		files, done, err := f.vs.Options.Volumes.Files(x.ID)
		if err != nil {
			return err
		}
		if err = g(files); err != nil || op != brig.OpReadVolume {
			done()
			return err
		}
		release = done
		return nil
	})
	if err != nil && release != nil {
		release()
		release = nil
	}
	return release, err
}

// entry makes a call that returns an entry.
func (f volumeFiles) entry(ctx context.Context, op brig.Op, path string, g func(files *volume.Files) (*brig.VolumeEntry, error)) (out *brig.VolumeEntry, err error) {
	err = f.withFiles(ctx, op, path, func(files *volume.Files) error {
		out, err = g(files)
		return err
	})
	return out, err
}

func (f volumeFiles) Stat(ctx context.Context, path string) (*brig.VolumeEntry, error) {
	return f.entry(ctx, brig.OpStatVolume, path, func(files *volume.Files) (*brig.VolumeEntry, error) { return files.Stat(ctx, path) })
}

func (f volumeFiles) List(ctx context.Context, path string, depth int) (out []*brig.VolumeEntry, err error) {
	err = f.withFiles(ctx, brig.OpListVolume, path, func(files *volume.Files) error {
		out, err = files.List(ctx, path, depth)
		return err
	})
	return out, err
}

// Read opens the file in the call. The caller reads the content after the call, because it may read
// slowly.
func (f volumeFiles) Read(ctx context.Context, path string) (e *brig.VolumeEntry, r io.ReadCloser, err error) {
	release, err := f.keepFiles(ctx, brig.OpReadVolume, path, func(files *volume.Files) error {
		e, r, err = files.Read(ctx, path)
		return err
	})
	if err != nil {
		if r != nil {
			r.Close()
		}
		return nil, nil, err
	}
	return e, &volumeReader{r, release}, nil
}

// volumeReader releases the volume when it is closed.
type volumeReader struct {
	io.ReadCloser
	release func()
}

func (r *volumeReader) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}

func (f volumeFiles) MakeDir(ctx context.Context, path string, o brig.VolumeWrite) (*brig.VolumeEntry, error) {
	return f.entry(ctx, brig.OpMakeVolumeDir, path, func(files *volume.Files) (*brig.VolumeEntry, error) {
		return files.MakeDir(ctx, path, o)
	})
}

func (f volumeFiles) Write(ctx context.Context, path string, o brig.VolumeWrite, r io.Reader) (*brig.VolumeEntry, error) {
	return f.entry(ctx, brig.OpWriteVolume, path, func(files *volume.Files) (*brig.VolumeEntry, error) {
		return files.Write(ctx, path, o, r)
	})
}

func (f volumeFiles) SetAttributes(ctx context.Context, path string, a brig.VolumeAttributes) (*brig.VolumeEntry, error) {
	return f.entry(ctx, brig.OpSetVolumeAttributes, path, func(files *volume.Files) (*brig.VolumeEntry, error) {
		return files.SetAttributes(ctx, path, a)
	})
}

func (f volumeFiles) Remove(ctx context.Context, path string) error {
	return f.withFiles(ctx, brig.OpUnlinkVolume, path, func(files *volume.Files) error { return files.Remove(ctx, path) })
}
