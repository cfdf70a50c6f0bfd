package envd

import (
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/brig-run/brig"
	fs "github.com/brig-run/brig/api/e2b/envd/filesystempb"
	proc "github.com/brig-run/brig/api/e2b/envd/processpb"
	"github.com/brig-run/brig/api/httpapi"
)

// gate contains the checks that a request must pass before its body is read.
type gate struct {
	op             brig.Op
	maxMessageSize int // maximum size of a message in bytes, smallMessage if zero
}

// Limits of messages in bytes. The input of a process arrives in one message.
const (
	smallMessage  = 1 << 20
	mediumMessage = 8 << 20
	largeMessage  = 32 << 20
)

// gates maps the path of every request with a body to its gate.
var gates = map[string]gate{
	proc.ProcessListProcedure:        {op: brig.OpProcesses},
	proc.ProcessConnectProcedure:     {op: brig.OpAttach},
	proc.ProcessStartProcedure:       {brig.OpStart, mediumMessage},
	proc.ProcessUpdateProcedure:      {op: brig.OpResize},
	proc.ProcessStreamInputProcedure: {brig.OpInput, mediumMessage},
	proc.ProcessSendInputProcedure:   {brig.OpInput, largeMessage},
	proc.ProcessSendSignalProcedure:  {op: brig.OpSignal},
	proc.ProcessCloseStdinProcedure:  {op: brig.OpCloseInput},

	fs.FilesystemStatProcedure:             {op: brig.OpStat},
	fs.FilesystemMakeDirProcedure:          {op: brig.OpMakeDir},
	fs.FilesystemMoveProcedure:             {op: brig.OpMove},
	fs.FilesystemListDirProcedure:          {op: brig.OpListDir},
	fs.FilesystemRemoveProcedure:           {op: brig.OpUnlink},
	fs.FilesystemWatchDirProcedure:         {op: brig.OpWatch},
	fs.FilesystemCreateWatcherProcedure:    {op: brig.OpWatch},
	fs.FilesystemGetWatcherEventsProcedure: {op: brig.OpWatch},
	fs.FilesystemRemoveWatcherProcedure:    {op: brig.OpWatch},

	filesPath:   {op: brig.OpWrite},
	composePath: {op: brig.OpCompose},
}

// Paths that are not procedures.
const (
	filesPath   = "/files"
	composePath = "/files/compose"
)

// messageLimit returns the maximum message size of a procedure.
func messageLimit(procedure string) int {
	if size := gates[procedure].maxMessageSize; size > 0 {
		return size
	}
	return smallMessage
}

// admit authorizes a request before its body is read. It also sets the time
// limits of the body and counts the bytes of the body that are held in memory.
func (e *Envd) admit(r *http.Request) error {
	c := callOf(r.Context())
	g, ok := gates[r.URL.Path]
	if !ok || r.Method != http.MethodPost || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if err := httpapi.Check(r, e.service, c.box.ID, g.op); err != nil {
		return err
	}
	switch r.URL.Path {
	case filesPath:
		httpapi.AllowLongBody(r)
		return nil // the body is streamed
	case proc.ProcessStreamInputProcedure:
		httpapi.AllowOpenBody(r)
	default:
		httpapi.AllowBody(r)
	}
	lease, tenant := httpapi.LeaseOf(r.Context()), brig.ActorFrom(r.Context()).Tenant
	compressed := r.Header.Get("Content-Encoding") != "" || r.Header.Get("Connect-Content-Encoding") != ""
	c.body = &countedBody{ReadCloser: r.Body, maxBytes: messageLimit(r.URL.Path) + framing, compressed: compressed, reserve: func(n int) error {
		if err := lease.Reserve(tenant, int64(n)); err != nil {
			return e.failure(r.Context(), err)
		}
		return nil
	}, release: func(n int) { lease.Release(int64(n)) }}
	r.Body = c.body
	return nil
}

// deflated is the maximum number of bytes to which one byte of a compressed
// message can expand.
const deflated = 1032

// countedBody is a request body that reserves memory for its bytes.
type countedBody struct {
	io.ReadCloser
	reserve  func(int) error
	release  func(int)
	maxBytes int // maximum number of bytes before releaseRead or retain is called
	n        int
	// packed is the number of bytes that are reserved in advance for the
	// decompressed message. Its real size is known only after decompression.
	compressed bool
	packed     int
}

// framing is the allowance for bytes around a message.
const framing = 1 << 10

// Read implements io.Reader.
func (h *countedBody) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if n > 0 {
		ahead := 0
		if h.compressed {
			ahead = max(min(deflated*n, h.maxBytes-h.packed), 0)
		}
		if over := h.reserve(n + ahead); over != nil {
			return 0, over
		}
		h.packed += ahead
		if h.n += n; h.n > h.maxBytes {
			// If Read returned no error here, the library would read an
			// oversized message to its end.
			return 0, connect.NewError(connect.CodeResourceExhausted, errors.New("the message is too large"))
		}
	}
	return n, err
}

// releaseRead releases the memory of the bytes that were read so far.
func (h *countedBody) releaseRead() {
	if h != nil {
		h.release(h.n + h.packed)
		h.n, h.packed = 0, 0
	}
}

// deny answers a request that is not admitted with an error in the format of
// its protocol.
func (e *Envd) deny(w http.ResponseWriter, r *http.Request, err error) {
	if e.errors.IsSupported(r) {
		_ = e.errors.Write(w, r, e.failure(r.Context(), err)) // a disconnected client needs no response
		return
	}
	e.fail(w, r, "", err)
}

// options returns the handler options of both services.
func options() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCompressMinBytes(1 << 10),
		connect.WithConditionalHandlerOptions(func(s connect.Spec) []connect.HandlerOption {
			return []connect.HandlerOption{connect.WithReadMaxBytes(messageLimit(s.Procedure))}
		}),
	}
}

// releaseExcept releases the memory of the bytes that were read so far, except for
// size bytes. size is the size of the message that the stream holds while it
// runs.
func (h *countedBody) releaseExcept(size int) {
	if h == nil {
		return
	}
	if over := h.n + h.packed - size; over > 0 {
		h.release(over)
		h.n, h.packed = 0, size
	}
}

// bodyOf returns the counted body of the request of ctx, or nil.
func bodyOf(ctx context.Context) *countedBody { return callOf(ctx).body }
