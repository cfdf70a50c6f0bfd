package guest

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// The error of Park is NotFound only if the agent reports that the interpreter has ended, even if
// the host could not send the request to the interpreter. If an earlier agent rejects the call with
// an error, the interpreter may still run.
func TestParkReportsEndedInterpreter(t *testing.T) {
	closed := errors.New("its channel is closed")
	for _, c := range []struct {
		name     string
		begun    bool // the agent answers only after it has made pipes
		response string
		tellErr  error
		want     brig.Kind
	}{
		{"it had ended before", false, "not_found", nil, brig.NotFound},
		{"it ends meanwhile", true, "not_found", nil, brig.NotFound},
		{"it ends before it is told", true, "not_found", closed, brig.NotFound},
		{"it does not answer", true, "internal", nil, brig.Internal},
		{"it cannot be told", true, "internal", closed, brig.Internal},
		{"the agent cannot park", false, "invalid", nil, brig.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &Guest{Dial: func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					if f, err := wire.NewReader(theirs).Read(); err != nil || f.Type != wire.TypeCall {
						t.Errorf("the host sends %d, %v", f.Type, err)
						return
					}
					if c.begun {
						_ = wire.WriteJSON(theirs, wire.TypeParking, wire.Parking{Dir: "/tmp/pipes"})
					}
					_ = wire.WriteJSON(theirs, wire.TypeError, wire.Error{Kind: c.response, Message: "no"})
				}()
				return ours, nil
			}}
			_, err := g.Park(t.Context(), &Process{program: program{id: "x"}}, func(string) error { return c.tellErr })
			if brig.KindOf(err) != c.want {
				t.Errorf("Park = %v, of kind %v, want %v", err, brig.KindOf(err), c.want)
			}
		})
	}
}
