package guest

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// chunkSize is the size of a frame of file content, in bytes.
const chunkSize = 512 << 10

// Put implements brig.Instance.Put. The files are owned by "user".
func (g *Guest) Put(ctx context.Context, dir string, files []brig.File) error {
	u := newUser("")
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpPut, Put: &wire.Put{Dir: dir, UID: u.uid, GID: u.gid}})
	if err != nil {
		return err
	}
	defer end()
	// An agent that rejects the call may respond while the host is still writing. Return the
	// agent's response instead of the resulting write error.
	written := make(chan struct{})
	go func() {
		defer close(written)
		for _, f := range files {
			mode := f.Mode
			if mode == 0 {
				mode = 0o644
			}
			if wire.WriteJSON(conn, wire.TypeFile, wire.File{Path: f.Path, Mode: mode, Size: int64(len(f.Data))}) != nil {
				return
			}
			for data := f.Data; len(data) > 0; {
				n := min(len(data), chunkSize)
				if wire.Write(conn, wire.TypeFileData, data[:n]) != nil {
					return
				}
				data = data[n:]
			}
		}
		_ = wire.Write(conn, wire.TypeFilesEnd, nil)
	}()
	err = finish(ctx, wire.NewReader(conn))
	conn.Close()
	<-written
	return err
}

// Collect implements brig.Instance.Collect.
func (g *Guest) Collect(ctx context.Context, dir string) (files []brig.File, skipped []string, err error) {
	call := &wire.Collect{Dir: dir, Count: brig.MaxArtifacts, Size: brig.MaxArtifactSize}
	for ext := range brig.ArtifactTypes {
		call.Extensions = append(call.Extensions, ext)
	}
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpCollect, Collect: call})
	if err != nil {
		return nil, nil, err
	}
	defer end()
	r := wire.NewReader(conn)
	remaining := int64(0) // remaining bytes of the current file
	for {
		f, err := r.Read()
		if err != nil {
			return nil, nil, causeOrError(ctx, err)
		}
		switch {
		case f.Type == wire.TypeFileData && len(files) > 0 && int64(len(f.Payload)) <= remaining:
			last := &files[len(files)-1]
			last.Data = append(last.Data, f.Payload...)
			remaining -= int64(len(f.Payload))
		case f.Type == wire.TypeFile && remaining == 0:
			var file wire.File
			if err := json.Unmarshal(f.Payload, &file); err != nil {
				return nil, nil, newMalformedError("artifact", err)
			}
			switch {
			case file.Size < 0:
				skipped = skip(skipped, file.Path)
			case len(files) == brig.MaxArtifacts || file.Size > brig.MaxArtifactSize:
				return nil, nil, newViolation("artifact beyond what was asked for")
			default:
				files = append(files, brig.File{Path: file.Path, Mode: file.Mode & 0o777})
				remaining = file.Size
			}
		case f.Type == wire.TypeOK && remaining == 0:
			// The name must not refer to another directory on any operating
			// system that a client may use.
			files = slices.DeleteFunc(files, func(f brig.File) bool {
				isInvalid := !brig.IsArtifactName(f.Path)
				if isInvalid {
					skipped = skip(skipped, f.Path)
				}
				return isInvalid
			})
			return files, skipped, nil
		case f.Type == wire.TypeError:
			return nil, nil, decodeAgentError(f.Payload)
		default:
			return nil, nil, newViolation("unexpected frame %d", f.Type)
		}
	}
}

// maxSkipped is the maximum number of skipped artifacts that Collect names.
const maxSkipped = 100

func skip(skipped []string, name string) []string {
	if len(skipped) == maxSkipped {
		return skipped
	}
	return append(skipped, brig.Clip(name, 255))
}
