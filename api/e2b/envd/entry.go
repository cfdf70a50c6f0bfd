package envd

import (
	"io/fs"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/filesystempb"
)

// entry is what there is at a path, in E2B's terms.
func entry(e *brig.Entry) *pb.EntryInfo {
	if e == nil {
		return nil
	}
	out := &pb.EntryInfo{
		Name: e.Name, Path: e.Path, Size: e.Size, Mode: e.Mode & 0o777,
		Owner: e.Owner, Group: e.Group, Metadata: e.Metadata,
	}
	mode := fs.FileMode(out.Mode)
	switch e.Type {
	case brig.RegularFile:
		out.Type = pb.FileType_FILE_TYPE_FILE
	case brig.Directory:
		out.Type, mode = pb.FileType_FILE_TYPE_DIRECTORY, mode|fs.ModeDir
	case brig.Symlink:
		out.Type, mode = pb.FileType_FILE_TYPE_SYMLINK, mode|fs.ModeSymlink
		out.IsSymlink, out.SymlinkTarget = true, &e.Target
	}
	out.Permissions = mode.String()
	if !e.Modified.IsZero() {
		out.ModifiedTime = timestamppb.New(e.Modified)
	}
	return out
}

// kinds are the changes in the order in which they are told.
var kinds = [...]struct {
	kind  brig.ChangeKind
	event pb.EventType
	entry bool // what is there now is told with it
}{
	{brig.Created, pb.EventType_EVENT_TYPE_CREATE, true},
	{brig.Renamed, pb.EventType_EVENT_TYPE_RENAME, false},
	{brig.ModeSet, pb.EventType_EVENT_TYPE_CHMOD, true},
	{brig.Written, pb.EventType_EVENT_TYPE_WRITE, true},
	{brig.Vanished, pb.EventType_EVENT_TYPE_REMOVE, false},
}

// events are what a change is, one for each of its kinds.
func events(c brig.FileChange, entries bool) (out []*pb.FilesystemEvent) {
	for _, k := range kinds {
		for _, kind := range c.Kinds {
			if kind != k.kind {
				continue
			}
			ev := &pb.FilesystemEvent{Name: c.Name, Type: k.event}
			if entries && k.entry {
				ev.Entry = entry(c.Entry)
			}
			out = append(out, ev)
		}
	}
	return out
}
