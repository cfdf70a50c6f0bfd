package kernels

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// maxQueue is the maximum number of queued messages of a client.
const maxQueue = 64

// sendTimeout is how long a client may leave one message unread. Until then,
// back-pressure blocks the code.
const sendTimeout = 5 * time.Minute

// channel is a client's connection to a kernel. It answers messages in order of
// arrival, except interrupts and shutdowns, which it handles immediately. If the client disconnects, running code is interrupted,
// because no client waits for its result.
type channel struct {
	d        *API
	k        kernel
	session  string
	conn     *websocket.Conn
	raw      net.Conn        // the connection below conn
	io       context.Context // for reading and writing; never canceled
	reserved *share          // memory that is reserved for its messages
	ended    <-chan struct{} // closed when the kernel ends
	leaving  atomic.Bool     // the client shuts down the kernel over this connection
}

// serveChannels serves the WebSocket connection for a kernel's messages.
func (d *API) serveChannels(w http.ResponseWriter, r *http.Request) error {
	id := chi.URLParam(r, "id")
	k, err := d.find(r.Context(), brig.OpOpenKernel, id)
	if err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return brig.Errorf(brig.InvalidArgument, "Can \"Upgrade\" only to \"WebSocket\".").WithHint("connect with a WebSocket client")
	}
	reserved, release, err := d.open.acquire(brig.ActorFrom(r.Context()).Tenant, id)
	if err != nil {
		return err
	}
	defer release()
	ended, endUse, err := k.hold(r.Context())
	if err != nil {
		return err
	}
	defer endUse()
	// The guard has already checked the origin.
	below := &hijacker{ResponseWriter: w}
	conn, err := websocket.Accept(below, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		d.Log.DebugContext(r.Context(), "kernels: accept", "error", err)
		return nil // Accept has answered with the error
	}
	defer conn.CloseNow() //nolint:errcheck // it may already be closed
	conn.SetReadLimit(maxMessage)
	c := &channel{d: d, k: k, ended: ended, session: d.NewID(), conn: conn, raw: below.conn, reserved: reserved}
	c.serve(r.Context())
	return nil
}

// closeTimeout is how long the end of a connection may take. The library gives the client
// five seconds to receive the reason, and five seconds for its reply.
const closeTimeout = 15 * time.Second

// hijacker keeps the connection of a hijacked response.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, buf, err
}

// close closes the connection and sends the reason to the client.
func (c *channel) close(err error) {
	code, reason := websocket.StatusNormalClosure, ""
	switch {
	case err == nil || websocket.CloseStatus(err) >= 0:
	case errors.Is(err, errClosing):
		code, reason = websocket.StatusGoingAway, "the server stops"
	case errors.Is(err, errGone):
		reason = errGone.Error()
		c.sendDead()
	case brig.KindOf(err) == brig.InvalidArgument:
		e := brig.AsError(err)
		code, reason = websocket.StatusInvalidFramePayloadData, strings.TrimPrefix(e.Field+": "+e.Message, ": ")
	case brig.KindOf(err) == brig.Unauthenticated:
		code, reason = websocket.StatusPolicyViolation, "the key is good no more"
	case brig.KindOf(err) == brig.RateLimited:
		code, reason = websocket.StatusTryAgainLater, brig.AsError(err).Message
	default:
		code, reason = websocket.StatusInternalError, "internal error"
	}
	// Close waits without a limit for the rest of a frame, whose size the client chooses.
	late := time.AfterFunc(c.d.closeTimeout, func() { _ = c.raw.Close() })
	defer late.Stop()
	_ = c.conn.Close(code, brig.Clip(reason, 120)) // fails if the client has disconnected
}

// replyTimeout is how long a client of a kernel that has ended may take to receive
// the reply to the code that ran.
const replyTimeout = 5 * time.Second

// sendDead reports to the client that the kernel has ended. The message belongs
// to no request.
func (c *channel) sendDead() {
	none := &request{header: json.RawMessage("{}")}
	if b, err := c.encodeReply(none, "iopub", "status", content{"execution_state": "dead"}); err == nil {
		_ = c.write(b, replyTimeout) // fails if the client has disconnected
	}
}

// Reasons to close a connection.
var (
	errClosing = errors.New("the server stops")
	errGone    = errors.New("the kernel is gone")
)

// serve answers messages until the client disconnects or ctx ends. The cause of
// the end is sent to the client. Therefore the end of ctx immediately ends only
// the work. Messages are read and written in a context that outlives ctx,
// because the connection would otherwise be closed without a reason.
func (c *channel) serve(ctx context.Context) {
	queue := make(chan *request, maxQueue)
	idle := make(chan struct{}) // closed when no more messages are answered
	c.io = context.WithoutCancel(ctx)
	ctx, end := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() {
		<-ctx.Done()
		c.close(context.Cause(ctx)) // the reader receives the client's reply, or an error
	})
	workers.Go(func() {
		select {
		case <-c.d.closed:
			end(errClosing)
		case <-c.ended:
			if c.leaving.Load() {
				return // the client first receives the response to its shutdown_request
			}
			select { // and then the reply to the code that ended with the kernel
			case <-idle:
			case <-time.After(replyTimeout):
			case <-ctx.Done():
			}
			end(errGone)
		case <-ctx.Done():
		}
	})
	workers.Go(func() {
		defer close(idle)
		for {
			select {
			case <-c.ended:
				return
			default:
			}
			select {
			case <-c.ended:
			case r := <-queue:
				if err := c.handleShell(ctx, r); err != nil {
					end(err)
					return
				}
				c.reserved.free(r.size())
			case <-ctx.Done():
				return
			}
		}
	})
	for ctx.Err() == nil {
		r, err := c.read()
		if err == nil && ctx.Err() == nil {
			err = c.dispatch(ctx, r, queue)
		}
		if err != nil {
			end(err)
		}
	}
}

// dispatch handles an urgent message immediately and queues any other message.
func (c *channel) dispatch(ctx context.Context, r *request, queue chan<- *request) error {
	if r.isUrgent() {
		defer c.reserved.free(r.size())
		return c.handleControl(ctx, r)
	}
	select {
	case queue <- r:
		return nil
	default:
		return brig.Errorf(brig.RateLimited, "%d messages wait already", maxQueue)
	}
}

// read returns the next message.
func (c *channel) read() (*request, error) {
	kind, from, err := c.conn.Reader(c.io)
	if err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		return nil, brig.Errorf(brig.InvalidArgument, "messages are text: there are no buffers here")
	}
	data, err := io.ReadAll(countingReader{from, c.reserved})
	if err != nil {
		return nil, err
	}
	r, err := parse(data)
	if err != nil {
		return nil, err
	}
	c.reserved.free(len(data) - r.size())
	return r, nil
}

// send sends a response to the request r, unless the work has ended.
func (c *channel) send(ctx context.Context, r *request, on, kind string, content any) error {
	b, err := c.encodeReply(r, on, kind, content)
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return c.write(b, c.d.sendTimeout)
}

// write sends a message. If the client does not read it within limit, the
// connection ends.
func (c *channel) write(b []byte, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(c.io, limit)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, b)
}

// content has the fields of a message for which this package has no type.
type content map[string]any

// runBusy calls do and reports the kernel as busy until do returns.
func (c *channel) runBusy(ctx context.Context, r *request, do func() error) error {
	if err := c.send(ctx, r, "iopub", "status", content{"execution_state": "busy"}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return c.send(ctx, r, "iopub", "status", content{"execution_state": "idle"})
}

// handleShell answers a queued message, usually of the shell channel.
func (c *channel) handleShell(ctx context.Context, r *request) error {
	if r.channel == "stdin" {
		return nil // the server never requests input
	}
	if r.run != nil {
		return c.runBusy(ctx, r, func() error { return c.execute(ctx, r, r.run) })
	}
	reply, ok := staticReply(r.kind)
	if !ok {
		c.d.Log.DebugContext(ctx, "kernels: ignored a message of an unknown type", "type", brig.Clip(r.kind, 64))
		return nil // Jupyter's kernels ignore such messages, too
	}
	return c.runBusy(ctx, r, func() error {
		return c.send(ctx, r, r.channel, strings.TrimSuffix(r.kind, "_request")+"_reply", reply)
	})
}

// languageVersion is the version of Python in the reply to a
// kernel_info_request. The exact version depends on the image and is known only
// after the first cell.
const languageVersion = "3"

// staticReply returns the response to a message that does not need a kernel.
func staticReply(kind string) (content, bool) {
	ok := func(c content) (content, bool) {
		c["status"] = "ok"
		return c, true
	}
	switch kind {
	case "kernel_info_request":
		return ok(content{
			"protocol_version": protocolVersion, "implementation": "brig", "implementation_version": gatewayVersion,
			"language_info": content{"name": "python", "version": languageVersion, "mimetype": "text/x-python", "file_extension": ".py", "pygments_lexer": "ipython3"},
			"banner":        "Brig", "help_links": []string{},
		})
	case "comm_info_request":
		return ok(content{"comms": content{}})
	case "history_request":
		return ok(content{"history": []string{}})
	case "complete_request":
		return ok(content{"matches": []string{}, "cursor_start": 0, "cursor_end": 0, "metadata": content{}})
	case "inspect_request":
		return ok(content{"found": false, "data": content{}, "metadata": content{}})
	case "is_complete_request":
		return content{"status": "unknown"}, true
	}
	return nil, false
}

// handleControl answers an interrupt or shutdown.
func (c *channel) handleControl(ctx context.Context, r *request) error {
	if r.kind == "interrupt_request" {
		return c.runBusy(ctx, r, func() error {
			return c.send(ctx, r, r.channel, "interrupt_reply", c.replyContent(c.k.interrupt(ctx)))
		})
	}
	do, restart := c.k.remove, r.restart
	if restart {
		do = c.k.restart
	}
	c.leaving.Store(!restart)
	var failed error
	err := c.runBusy(ctx, r, func() error {
		failed = do(ctx)
		reply := c.replyContent(failed)
		reply["restart"] = restart
		return c.send(ctx, r, r.channel, "shutdown_reply", reply)
	})
	if c.leaving.Store(false); err != nil || restart {
		return err
	}
	select {
	case <-c.ended:
		failed = nil // another request has already removed the kernel
	default:
	}
	if failed == nil {
		return errGone
	}
	return nil
}

// replyContent returns the content of a reply to an operation that returned
// err.
func (c *channel) replyContent(err error) content {
	if err == nil {
		return content{"status": "ok"}
	}
	e := c.toCodeError(err)
	return content{"status": "error", "ename": e.Name, "evalue": e.Value, "traceback": tracebackLines(e)}
}

// toCodeError converts an error of the Service to an error of the code, as a
// kernel would report it.
func (c *channel) toCodeError(err error) *brig.CodeError {
	if httpapi.StatusOf(err) >= http.StatusInternalServerError {
		c.d.Log.Error("kernels: request failed", "error", err)
	}
	e := brig.AsError(err)
	text := e.Kind.Code() + ": " + e.Message
	if e.Hint != "" {
		text += "\nhint: " + e.Hint
	}
	return &brig.CodeError{Name: "BrigError", Value: e.Message, Traceback: text}
}
