package mcp

import (
	"context"
	"errors"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// scheme is the URI scheme of resources: brig://sandboxes/NAME/files/PATH and
// brig://sandboxes/NAME/log.
const scheme = "brig"

// maxURI limits the length of a URI. No valid path is that long.
const maxURI = 16 * brig.KiB

// addResources registers the URI templates of resources.
func (d *toolServer) addResources(s *mcp.Server) {
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: scheme + "://sandboxes/{sandbox}/files{+path}", Name: "file", Title: "A sandbox's file",
		Description: "A file of up to 8 MiB, by its absolute path; read_file reads parts of larger ones.",
	}, d.readResource)
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: scheme + "://sandboxes/{sandbox}/log", Name: "log", Title: "A sandbox's log", MIMEType: "text/plain",
		Description: "What the sandbox's programs wrote, also after its end.",
	}, d.readResource)
}

// resourceRef is the resource to which a URI refers.
type resourceRef struct {
	sandbox string
	file    string // absolute path, empty for the log
}

// parseURI parses the URI of a resource.
func parseURI(uri string) (p resourceRef, ok bool) {
	if len(uri) > maxURI || strings.IndexFunc(uri, func(c rune) bool { return c <= ' ' || c > '~' }) >= 0 {
		return p, false
	}
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != scheme || u.Host != "sandboxes" || u.User != nil || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" {
		return p, false
	}
	sandbox, rest, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if p.sandbox, err = url.PathUnescape(sandbox); err != nil || p.sandbox == "" {
		return p, false
	}
	if rest == "log" {
		return p, true
	}
	name, ok := strings.CutPrefix(rest, "files/")
	if !ok {
		return p, false
	}
	name, err = url.PathUnescape(name)
	p.file = "/" + name
	return p, err == nil && name != "" && path.Clean(p.file) == p.file && !strings.ContainsRune(name, 0)
}

// fileURI returns the URI of a file.
func fileURI(sandbox, name string) string {
	u := url.URL{Scheme: scheme, Host: "sandboxes", Path: "/" + sandbox + "/files" + name}
	return u.String()
}

func logURI(sandbox string) string {
	u := url.URL{Scheme: scheme, Host: "sandboxes", Path: "/" + sandbox + "/log"}
	return u.String()
}

// checkURI returns an error for an invalid URI. It is called before the library
// uses the URI, because the library would produce invalid JSON from it.
func checkURI(uri string) error {
	if _, ok := parseURI(uri); !ok {
		return brig.InvalidField("uri", "it is no address of a resource").
			WithHint("for example brig://sandboxes/NAME/files/workspace/a.txt or brig://sandboxes/NAME/log")
	}
	return nil
}

// readResource implements resources/read.
func (d *toolServer) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	p, ok := parseURI(uri)
	if !ok {
		return nil, toProtocol(checkURI(uri))
	}
	var data []byte
	var err error
	kind := "text/plain"
	if p.file == "" {
		if err = takeTurn(ctx); err == nil {
			data, err = d.readLogTail(ctx, p.sandbox, 0, maxRead)
		}
	} else {
		kind = mediaType(p.file)
		data, err = d.readWholeFile(ctx, p)
	}
	if err != nil {
		return nil, toResourceError(req, err)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents(uri, kind, data)}}, nil
}

// codeNoResource is the code for a missing resource in the versions with
// sessions. Later versions use the code for invalid params.
const codeNoResource = -32002

// metaVersion is the key of the version in the requests of versions without
// sessions.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// toResourceError converts an error from reading a resource to the protocol's
// format.
func toResourceError(req *mcp.ReadResourceRequest, err error) error {
	out := toProtocol(err)
	if wire, ok := errors.AsType[*jsonrpc.Error](out); ok && brig.KindOf(err) == brig.NotFound && req.Params.Meta[metaVersion] == nil {
		wire.Code = codeNoResource
	}
	return out
}

func (d *toolServer) readWholeFile(ctx context.Context, p resourceRef) ([]byte, error) {
	e, data, err := d.read(ctx, p.sandbox, p.file, 0, maxRead)
	if err == nil && e.Size > maxRead {
		return nil, brig.InvalidField("uri", "the file has %d bytes, and a resource up to %d", e.Size, int64(maxRead)).WithHint("read parts of it with read_file")
	}
	return data, err
}

// readLogTail returns the end of a sandbox's log.
func (d *toolServer) readLogTail(ctx context.Context, sandbox string, lines, limit int) ([]byte, error) {
	r, err := d.service.Logs(ctx, sandbox, brig.LogOptions{Tail: lines})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	k := tail{maxSize: limit}
	_, err = io.Copy(&k, r)
	return k.text, err
}

// tail is a writer that keeps the end of its input.
type tail struct {
	text    []byte
	maxSize int
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if cut := len(t.text) - t.maxSize; cut > 0 {
		t.text = append(t.text[:0], t.text[cut:]...)
	}
	return len(p), nil
}

// listResources implements resources/list. It lists only the logs of running
// sandboxes. Clients list files with a tool.
func (d *toolServer) listResources(ctx context.Context, req *mcp.ListResourcesRequest) (mcp.Result, error) {
	o := brig.ListOptions{States: []brig.State{brig.Creating, brig.Running}}
	if req.Params != nil {
		o.Cursor = req.Params.Cursor
	}
	if err := takeTurn(ctx); err != nil {
		return nil, toProtocol(err)
	}
	page, err := d.service.List(ctx, o)
	if err != nil {
		return nil, toProtocol(err)
	}
	res := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}, NextCursor: page.Next}
	res.CacheScope = "private"
	for _, s := range page.Sandboxes {
		res.Resources = append(res.Resources, &mcp.Resource{
			URI: logURI(s.Spec.Name), Name: s.Spec.Name + "/log", Title: "Log of " + s.Spec.Name, MIMEType: "text/plain",
		})
	}
	return res, nil
}

type logIn struct {
	Sandbox string `json:"sandbox" jsonschema:"a sandbox by name or id"`
	Lines   int    `json:"lines,omitempty" jsonschema:"how many of the last lines; default 100"`
}

type logOut struct {
	Text string `json:"text"`
}

// show implements presenter.
func (o *logOut) show() []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: o.Text}} }

func (d *toolServer) readLog(ctx context.Context, _ *mcp.CallToolRequest, in *logIn) (*logOut, error) {
	const usual = 100
	if in.Lines < 0 {
		return nil, brig.InvalidField("lines", "%d is out of bounds", in.Lines).WithHint("give 1 or more")
	}
	if in.Lines == 0 {
		in.Lines = usual
	}
	text, err := d.readLogTail(ctx, in.Sandbox, in.Lines, maxText)
	if err != nil {
		return nil, err
	}
	return &logOut{Text: toValidUTF8(text)}, nil
}
