package envd

import (
	"io/fs"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/filesystempb"
)

// entry converts a directory entry to E2B's format.
func entry(e *brig.Entry) *pb.EntryInfo {
	if e == nil {
		return nil
	}
	out := &pb.EntryInfo{
		Name: e.Name, Path: e.Path, Size: e.Size, Mode: e.Mode & 0o777,
		Owner: e.Owner, Group: e.Group, Metadata: e.Metadata,
	}
	kind, mode := e.Type, fs.FileMode(out.Mode)
	if kind == brig.Symlink {
		// Type and mode describe the target, as in E2B. The permissions
		// describe the link itself.
		kind, out.Mode = e.TargetType, e.TargetMode
		mode |= fs.ModeSymlink
		out.IsSymlink, out.SymlinkTarget = true, &e.Target
	}
	switch kind {
	case brig.RegularFile:
		out.Type = pb.FileType_FILE_TYPE_FILE
	case brig.Directory:
		out.Type = pb.FileType_FILE_TYPE_DIRECTORY
		if e.Type == brig.Directory {
			mode |= fs.ModeDir
		}
	}
	out.Permissions = mode.String()
	if !e.Modified.IsZero() {
		out.ModifiedTime = timestamppb.New(e.Modified)
	}
	return out
}

// kinds lists the kinds of changes in the order in which events are sent.
var kinds = [...]struct {
	kind  brig.ChangeKind
	event pb.EventType
	entry bool // whether the event contains the current entry
}{
	{brig.Created, pb.EventType_EVENT_TYPE_CREATE, true},
	{brig.Renamed, pb.EventType_EVENT_TYPE_RENAME, false},
	{brig.ModeSet, pb.EventType_EVENT_TYPE_CHMOD, true},
	{brig.Written, pb.EventType_EVENT_TYPE_WRITE, true},
	{brig.Vanished, pb.EventType_EVENT_TYPE_REMOVE, false},
}

// events converts a change to events, one for each of its kinds.
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
