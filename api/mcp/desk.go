package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// desk is where messages are worked on, whichever way they came.
type desk struct {
	service brig.Service
	log     *slog.Logger
	version string
	// sessions and visits are those of HTTP, nil for anything else; there base
	// says who is calling, and for how long.
	sessions *sessions
	visits   *visits
	base     context.Context
}

// instructions is what a client may tell its model about the server.
const instructions = `Brig runs code in isolated sandboxes.
run_code and run_shell without "sandbox" run in a fresh sandbox that is gone afterwards.
To keep variables and files between calls, make a sandbox with create_sandbox and give its name as "sandbox". It ends when it is not used for ttl_seconds (default 300).
Sandboxes connect to nowhere but the hosts that allow_hosts names. Files that a fresh sandbox leaves in artifacts/ come back with the result.`

// server returns a server with all tools and resources.
func (d *desk) server() (*mcp.Server, error) {
	s := mcp.NewServer(&mcp.Implementation{Name: "brig", Title: "Brig", Version: d.version}, &mcp.ServerOptions{
		Instructions: instructions,
		// The lists never change while the server runs.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}},
		// What one may see is nobody else's to be shown.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	s.AddReceivingMiddleware(d.receive)
	tools := &toolbox{Server: s, log: d.log}
	d.addTools(tools)
	d.addResources(s)
	return s, tools.faults
}

// Serve serves one client on a pair of streams until the client's ends, or ctx
// does. Who is calling is in ctx.
func Serve(ctx context.Context, o Options, in io.ReadCloser, out io.WriteCloser) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &desk{service: o.Service, log: o.Log, version: o.Version, base: ctx}
	server, err := d.server()
	if err != nil {
		return err
	}
	to := &whole{WriteCloser: out}
	err = server.Run(ctx, &mcp.IOTransport{Reader: newLines(in, to), Writer: to, MaxLineLength: maxMessage})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receive is what every message passes. Messages that ask for work are worked
// on as whoever has sent them, and for no longer than somebody waits.
func (d *desk) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			// The library calls this on a goroutine of its own, where a panic
			// would be the server's end.
			if p := recover(); p != nil {
				d.log.ErrorContext(ctx, "handler panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
				res, err = nil, toProtocol(brig.Errorf(brig.Internal, "panic"))
			}
		}()
		switch method {
		case "initialize":
			return d.begin(ctx, method, req, next)
		case "tools/call", "resources/read", "resources/list":
			ctx, done, err := d.enter(ctx, req)
			if err != nil {
				return nil, toProtocol(err)
			}
			defer done()
			if list, ok := req.(*mcp.ListResourcesRequest); ok {
				return d.listResources(ctx, list)
			}
			if read, ok := req.(*mcp.ReadResourceRequest); ok {
				if err := checkURI(read.Params.URI); err != nil {
					return nil, toProtocol(err)
				}
			}
			return next(ctx, method, req)
		}
		return next(ctx, method, req)
	}
}

// visit returns the context of the request that brought a message.
func (d *desk) visit(req mcp.Request) (context.Context, error) {
	if d.visits == nil {
		return d.base, nil
	}
	if extra := req.GetExtra(); extra != nil {
		if visit, ok := d.visits.find(extra.Header); ok {
			return visit, nil
		}
	}
	return nil, brig.Errorf(brig.Canceled, "the caller went away")
}

// begin makes a session known as that of whoever has begun it.
func (d *desk) begin(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	if ends, ok := req.GetSession().(*mcp.ServerSession); ok && d.sessions != nil && ends.ID() != "" {
		visit, err := d.visit(req)
		if err != nil {
			return nil, toProtocol(err)
		}
		if err := d.sessions.begin(brig.ActorFrom(visit), ends); err != nil {
			return nil, toProtocol(err)
		}
	}
	return next(ctx, method, req)
}

// enter returns the context for a call, which done ends.
func (d *desk) enter(ctx context.Context, req mcp.Request) (_ context.Context, done func(), err error) {
	visit, err := d.visit(req)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := during(ctx, visit)
	leave, err := d.sessions.call(req.GetSession().ID(), cancel)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() { leave(); cancel(nil) }, nil
}

// toProtocol returns an error as the protocol has them. The code is that of
// JSON-RPC which comes closest; ours is in the data.
func toProtocol(err error) error {
	if already, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return already
	}
	e := brig.AsError(err)
	code := int64(jsonrpc.CodeInternalError)
	switch e.Kind {
	case brig.InvalidArgument, brig.NotFound:
		code = jsonrpc.CodeInvalidParams
	case brig.Unimplemented:
		code = jsonrpc.CodeMethodNotFound
	}
	data, err := json.Marshal(failed(e))
	if err != nil {
		data = nil // the message says it all
	}
	return &jsonrpc.Error{Code: code, Message: tell(e), Data: data}
}

// tell is an error as people and models read it.
func tell(e *brig.Error) string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	s = fmt.Sprintf("%s (%s)", s, e.Kind.Code())
	if e.Hint != "" {
		s += "\nhint: " + e.Hint
	}
	return s
}
