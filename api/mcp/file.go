package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// Number of bytes that one call reads from a file: the default and the maximum.
const (
	defaultRead = 256 * brig.KiB
	maxRead     = 8 * brig.MiB
)

// startDir is the default directory of files, which is the working directory of
// commands.
const startDir = "."

type readFileIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Path    string `json:"path" jsonschema:"absolute, or relative to where commands start (/workspace unless the sandbox has another)"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"where to begin, in bytes"`
	Most    int64  `json:"max_bytes,omitempty" jsonschema:"how much to read; default 262144, at most 8388608"`
}

type readFileOut struct {
	Path   string `json:"path"`
	Size   int64  `json:"size" jsonschema:"of the whole file"`
	Offset int64  `json:"offset"`
	Text   string `json:"text,omitempty"`
	Data   []byte `json:"data_b64,omitempty" jsonschema:"the content, if it is not text"`
	More   bool   `json:"more,omitempty" jsonschema:"the file has more content"`

	uri string
}

// show implements presenter.
func (o *readFileOut) show() []mcp.Content {
	if o.Data == nil {
		return []mcp.Content{&mcp.TextContent{Text: o.Text}}
	}
	return []mcp.Content{fileContent(o.uri, o.Data)}
}

type writeFileIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Path    string `json:"path" jsonschema:"absolute, or relative to where commands start (/workspace unless the sandbox has another); directories above it are made"`
	Text    string `json:"text,omitempty"`
	Data    []byte `json:"data_b64,omitempty" jsonschema:"the content, if it is not text"`
	Mode    string `json:"mode,omitempty" jsonschema:"permission bits in octal digits; default 0644"`
}

type listFilesIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Path    string `json:"path,omitempty" jsonschema:"a directory; default where commands start"`
	Depth   int    `json:"depth,omitempty" jsonschema:"how deep; default 1"`
}

type pathIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Path    string `json:"path" jsonschema:"absolute, or relative to where commands start (/workspace unless the sandbox has another)"`
}

type entryOut struct {
	Path     string `json:"path"`
	Type     string `json:"type" jsonschema:"file, directory, symlink or other"`
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`
	Modified string `json:"modified"`
	Target   string `json:"target,omitempty"`
}

type entriesOut struct {
	Entries []entryOut `json:"entries"`
	More    bool       `json:"more,omitempty" jsonschema:"there are more than are shown"`
}

// maxEntries limits the entries of a listing.
const maxEntries = 1000

func (d *toolServer) readFile(ctx context.Context, _ *mcp.CallToolRequest, in *readFileIn) (*readFileOut, error) {
	length := in.Most
	if length == 0 {
		length = defaultRead
	}
	if length < 1 || length > maxRead {
		return nil, brig.InvalidField("max_bytes", "%d is out of bounds", in.Most).WithHint("give 1 to %d", int64(maxRead))
	}
	if in.Offset < 0 {
		return nil, brig.InvalidField("offset", "%d is out of bounds", in.Offset).WithHint("give 0 or more")
	}
	if in.Path == "" {
		return nil, brig.InvalidField("path", "is missing").WithHint("for example /workspace/a.txt")
	}
	e, data, err := d.read(ctx, in.Sandbox, in.Path, in.Offset, length)
	if err != nil {
		return nil, err
	}
	out := &readFileOut{Path: e.Path, Size: e.Size, Offset: in.Offset, uri: fileURI(in.Sandbox, e.Path)}
	if out.More = in.Offset+int64(len(data)) < e.Size; isText(string(data)) {
		out.Text = string(data)
	} else {
		out.Data = data
	}
	return out, nil
}

// read reads a part of a file.
func (d *toolServer) read(ctx context.Context, sandbox, name string, from, length int64) (*brig.Entry, []byte, error) {
	e, r, err := d.service.Files(sandbox).Read(ctx, brig.Path{Name: name}, from, length)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, length))
	return e, data, err
}

func (d *toolServer) writeFile(ctx context.Context, _ *mcp.CallToolRequest, in *writeFileIn) (*entryOut, error) {
	f := fileIn{Text: in.Text, Data: in.Data}
	data, invalid := f.decodeContent()
	if invalid != nil {
		return nil, invalid
	}
	if in.Path == "" {
		return nil, brig.InvalidField("path", "is missing").WithHint("for example /workspace/a.txt")
	}
	var w brig.FileWrite
	if in.Mode != "" {
		n, err := strconv.ParseUint(in.Mode, 8, 32)
		if err != nil || n > 0o777 {
			return nil, brig.InvalidField("mode", "must be permission bits in octal digits").WithHint("for example 0644")
		}
		w.Mode = uint32(n)
	}
	e, err := d.service.Files(in.Sandbox).Write(ctx, brig.Path{Name: in.Path}, w, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out := fromEntry(e)
	return &out, nil
}

func (d *toolServer) listFiles(ctx context.Context, _ *mcp.CallToolRequest, in *listFilesIn) (*entriesOut, error) {
	if in.Path == "" {
		in.Path = startDir
	}
	if in.Depth < 0 {
		return nil, brig.InvalidField("depth", "%d is out of bounds", in.Depth).WithHint("give 1 or more")
	}
	list, err := d.service.Files(in.Sandbox).List(ctx, brig.Path{Name: in.Path}, max(in.Depth, 1))
	if err != nil {
		return nil, err
	}
	out := &entriesOut{Entries: []entryOut{}, More: len(list) > maxEntries}
	for _, e := range list[:min(len(list), maxEntries)] {
		out.Entries = append(out.Entries, fromEntry(e))
	}
	return out, nil
}

func (d *toolServer) removeFile(ctx context.Context, _ *mcp.CallToolRequest, in *pathIn) (*doneOut, error) {
	if in.Path == "" {
		return nil, brig.InvalidField("path", "is missing").WithHint("for example /workspace/a.txt")
	}
	return doneResult(d.service.Files(in.Sandbox).Remove(ctx, brig.Path{Name: in.Path}))
}

func fromEntry(e *brig.Entry) entryOut {
	return entryOut{
		Path: toValidUTF8([]byte(e.Path)), Type: string(e.Type), Size: e.Size, Mode: fmt.Sprintf("%04o", e.Mode),
		Modified: formatTime(e.Modified), Target: toValidUTF8([]byte(e.Target)),
	}
}
