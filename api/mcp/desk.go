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
	"github.com/brig-run/brig/api/httpapi"
)

// toolServer handles messages of every transport.
type toolServer struct {
	service Service
	log     *slog.Logger
	version string
	// sessions and httpRequests are set only for HTTP. For other transports,
	// the actor comes from base, and the calls end with base.
	sessions     *sessions
	httpRequests *httpRequests
	base         context.Context
	shield       httpapi.Shield
}

// instructions is the description of the server that a client may show to its
// model.
const instructions = `Brig runs code in isolated sandboxes.
run_code and run_shell without "sandbox" run in a fresh sandbox that is gone afterwards.
To keep variables and files between calls, make a sandbox with create_sandbox and give its name as "sandbox". It ends when it is not used for ttl_seconds (default 300).
To try several ways from one state, copy the sandbox with fork_sandbox. To keep it for later, pause it with pause_sandbox; the next call continues it.
Sandboxes connect to nowhere but the hosts that allow_hosts names. Files that a fresh sandbox leaves in artifacts/ come back with the result.`

// newServer returns a server with all tools and resources.
func (d *toolServer) newServer() (*mcp.Server, error) {
	s := mcp.NewServer(&mcp.Implementation{Name: "brig", Title: "Brig", Version: d.version}, &mcp.ServerOptions{
		Instructions: instructions,
		// The lists do not change while the server runs.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}},
		// Responses are specific to the caller and must not be shared.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	s.AddReceivingMiddleware(d.receive)
	tools := &toolbox{Server: s, log: d.log}
	d.addTools(tools)
	d.addResources(s)
	err := mcp.AddReceivingCustomMethod(s, unknownMethod, answerUnknown)
	return s, errors.Join(tools.errs, err)
}

// Serve serves one client on a pair of streams until the client's stream or ctx
// ends. ctx contains the actor.
func Serve(ctx context.Context, o Options, in io.ReadCloser, out io.WriteCloser) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	uses := &brig.SessionUses{}
	defer uses.Close()
	d := &toolServer{service: o.Service, log: o.Log, version: o.Version, base: brig.WithSessionUses(ctx, uses)}
	server, err := d.newServer()
	if err != nil {
		return err
	}
	to := &lineWriter{WriteCloser: out}
	err = server.Run(ctx, &mcp.IOTransport{Reader: newLines(in, to), Writer: to, MaxLineLength: maxMessage})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receive handles every message. A message that causes work is handled with its
// sender's rights, and the work is canceled when the sender stops waiting.
func (d *toolServer) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			// The library calls this function on its own goroutine, where a
			// panic would end the server.
			if p := recover(); p != nil {
				d.log.ErrorContext(ctx, "handler panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
				res, err = nil, toProtocol(brig.Errorf(brig.Internal, "panic"))
			}
		}()
		switch method {
		case "initialize":
			return d.begin(ctx, method, req, next)
		case "tools/call", "resources/read", "resources/list":
			ctx, done, err := d.beginCall(ctx, req)
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

// requestContext returns the context of the request in which a message arrived.
func (d *toolServer) requestContext(req mcp.Request) (context.Context, error) {
	if d.httpRequests == nil {
		return d.base, nil
	}
	if extra := req.GetExtra(); extra != nil {
		if requestContext, ok := d.httpRequests.find(extra.Header); ok {
			return requestContext, nil
		}
	}
	return nil, brig.Errorf(brig.Canceled, "the caller disconnected")
}

// begin registers a session for the actor that started the session.
func (d *toolServer) begin(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	if serverSession, ok := req.GetSession().(*mcp.ServerSession); ok && d.sessions != nil && serverSession.ID() != "" {
		requestContext, err := d.requestContext(req)
		if err != nil {
			return nil, toProtocol(err)
		}
		if err := d.sessions.begin(requestContext, serverSession); err != nil {
			return nil, toProtocol(err)
		}
	}
	return next(ctx, method, req)
}

// beginCall returns the context of a call. The caller must call done when the
// call has ended.
func (d *toolServer) beginCall(ctx context.Context, req mcp.Request) (_ context.Context, done func(), err error) {
	requestContext, err := d.requestContext(req)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := mergeContext(ctx, requestContext)
	uses, leave, err := d.sessions.call(req.GetSession().ID(), cancel)
	if err != nil {
		cancel(nil)
		return nil, nil, err
	}
	if uses != nil {
		ctx = brig.WithSessionUses(ctx, uses)
	}
	return ctx, func() { leave(); cancel(nil) }, nil
}

// toProtocol converts an error to the protocol's format. The code is the
// closest JSON-RPC code, and the data contains the Brig error.
func toProtocol(err error) error {
	if rpcErr, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return rpcErr
	}
	e := brig.AsError(err)
	code := int64(jsonrpc.CodeInternalError)
	switch e.Kind {
	case brig.InvalidArgument, brig.NotFound:
		code = jsonrpc.CodeInvalidParams
	case brig.Unimplemented:
		code = jsonrpc.CodeMethodNotFound
	}
	data, err := json.Marshal(toAPIError(e))
	if err != nil {
		data = nil // the message contains all details
	}
	return &jsonrpc.Error{Code: code, Message: describe(e), Data: data}
}

// describe formats an error for people and models.
func describe(e *brig.Error) string {
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
