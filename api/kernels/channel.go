package kernels

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// maxQueue is how many messages of a client may wait for their turn.
const maxQueue = 64

// sendTimeout is how long a client may leave one message unread. Back-pressure
// holds the code up until then.
const sendTimeout = 5 * time.Minute

// channel is a client's connection to a kernel. Its messages are answered in
// the order in which they came, but for interrupts and shutdowns on the control
// channel, which are at once. Code that runs when the client goes away is interrupted: nobody waits
// for it.
type channel struct {
	d       *Door
	k       kernel
	session string
	conn    *websocket.Conn
	held    *share      // what its messages take
	leaving atomic.Bool // it shuts the kernel down itself
}

// channels serves a kernel's messages.
func (d *Door) channels(w http.ResponseWriter, r *http.Request) error {
	id := chi.URLParam(r, "id")
	k, err := d.find(r.Context(), brig.OpOpenKernel, id)
	if err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return brig.Errorf(brig.InvalidArgument, "Can \"Upgrade\" only to \"WebSocket\".").WithHint("connect with a WebSocket client")
	}
	held, leave, err := d.open.enter(brig.ActorFrom(r.Context()).Tenant, id)
	if err != nil {
		return err
	}
	defer leave()
	// The guard has looked at the origin.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		d.Log.DebugContext(r.Context(), "kernels: accept", "error", err)
		return nil // it has been answered
	}
	defer conn.CloseNow() //nolint:errcheck // it is closed already, or nobody listens
	conn.SetReadLimit(maxMessage)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	c := &channel{d: d, k: k, session: d.NewID(), conn: conn, held: held}
	c.close(c.serve(ctx, cancel))
	return nil
}

// close ends the connection, and says why.
func (c *channel) close(err error) {
	code, reason := websocket.StatusNormalClosure, ""
	switch {
	case err == nil || websocket.CloseStatus(err) >= 0:
	case errors.Is(err, errClosing):
		code, reason = websocket.StatusGoingAway, "the server stops"
	case errors.Is(err, errGone):
		reason = errGone.Error()
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
	_ = c.conn.Close(code, brig.Clip(reason, 120)) // who has gone is not told
}

// What ends connections: the server stops, or their kernel is no more.
var (
	errClosing = errors.New("the server stops")
	errGone    = errors.New("the kernel is gone")
)

// serve answers messages until the client goes away.
func (c *channel) serve(ctx context.Context, end context.CancelCauseFunc) error {
	queue := make(chan *request, maxQueue)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer end(nil)
	workers.Go(func() {
		select {
		case <-c.d.closed:
			end(errClosing)
		case <-c.k.gone():
			if !c.leaving.Load() { // who has asked for it is answered first
				end(errGone)
			}
		case <-ctx.Done():
		}
	})
	workers.Go(func() {
		for {
			select {
			case r := <-queue:
				if err := c.shell(ctx, r); err != nil {
					end(err)
					return
				}
				c.held.free(r.size())
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		r, err := c.read(ctx)
		if err == nil && r.urgent() {
			err = c.control(ctx, r)
			c.held.free(r.size())
		} else if err == nil {
			select {
			case queue <- r:
			default:
				err = brig.Errorf(brig.RateLimited, "%d messages wait already", maxQueue)
			}
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return err
		}
	}
}

// read is the next message.
func (c *channel) read(ctx context.Context) (*request, error) {
	kind, from, err := c.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		return nil, brig.Errorf(brig.InvalidArgument, "messages are text: there are no buffers here")
	}
	data, err := io.ReadAll(counting{from, c.held})
	if err != nil {
		return nil, err
	}
	r, err := parse(data)
	if err != nil {
		return nil, err
	}
	c.held.free(len(data) - r.size())
	return r, nil
}

// send sends one answer to a request.
func (c *channel) send(ctx context.Context, r *request, on, kind string, content any) error {
	b, err := c.answer(r, on, kind, content)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.d.sendTimeout)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, b)
}

// content is what a message says, where it has no form of its own.
type content map[string]any

// around says that the kernel is busy while do is done.
func (c *channel) around(ctx context.Context, r *request, do func() error) error {
	if err := c.send(ctx, r, "iopub", "status", content{"execution_state": "busy"}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return c.send(ctx, r, "iopub", "status", content{"execution_state": "idle"})
}

// shell answers a message on the shell channel.
func (c *channel) shell(ctx context.Context, r *request) error {
	if r.channel == "stdin" {
		return nil // nothing here asks for input
	}
	if r.run != nil {
		return c.around(ctx, r, func() error { return c.execute(ctx, r, r.run) })
	}
	reply, ok := replies(r.kind)
	if !ok {
		c.d.Log.DebugContext(ctx, "kernels: a message that nobody answers", "type", brig.Clip(r.kind, 64))
		return nil // as Jupyter's kernels do
	}
	return c.around(ctx, r, func() error {
		return c.send(ctx, r, "shell", strings.TrimSuffix(r.kind, "_request")+"_reply", reply)
	})
}

// replies are the answers to what needs no kernel.
func replies(kind string) (content, bool) {
	ok := func(c content) (content, bool) {
		c["status"] = "ok"
		return c, true
	}
	switch kind {
	case "kernel_info_request":
		return ok(content{
			"protocol_version": protocolVersion, "implementation": "brig", "implementation_version": gatewayVersion,
			"language_info": content{"name": "python", "mimetype": "text/x-python", "file_extension": ".py", "pygments_lexer": "ipython3"},
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

// control answers a message that is urgent.
func (c *channel) control(ctx context.Context, r *request) error {
	if r.kind == "interrupt_request" {
		return c.around(ctx, r, func() error {
			return c.send(ctx, r, "control", "interrupt_reply", c.done(c.k.interrupt(ctx)))
		})
	}
	do, restart := c.k.remove, r.restart
	if restart {
		do = c.k.restart
	}
	c.leaving.Store(!restart)
	var failed error
	err := c.around(ctx, r, func() error {
		failed = do(ctx)
		reply := c.done(failed)
		reply["restart"] = restart
		return c.send(ctx, r, "control", "shutdown_reply", reply)
	})
	if c.leaving.Store(false); err != nil || restart {
		return err
	}
	select {
	case <-c.k.gone():
		failed = nil // somebody else has done it
	default:
	}
	if failed == nil {
		return errGone
	}
	return nil
}

// done is the content of a reply to something that err came of.
func (c *channel) done(err error) content {
	if err == nil {
		return content{"status": "ok"}
	}
	e := c.excuse(err)
	return content{"status": "error", "ename": e.Name, "evalue": e.Value, "traceback": lines(e)}
}

// excuse is an error of the service's own as one of a kernel.
func (c *channel) excuse(err error) *brig.CodeError {
	if door.StatusOf(err) >= http.StatusInternalServerError {
		c.d.Log.Error("kernels: request failed", "error", err)
	}
	e := brig.AsError(err)
	text := e.Kind.Code() + ": " + e.Message
	if e.Hint != "" {
		text += "\nhint: " + e.Hint
	}
	return &brig.CodeError{Name: "BrigError", Value: e.Message, Traceback: text}
}
