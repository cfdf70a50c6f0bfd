package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// programSide is the program's side of a stream.
type programSide struct {
	t   *testing.T
	fds fdset
}

func (f programSide) write(i int, p string) {
	f.t.Helper()
	for b := []byte(p); len(b) > 0; {
		n, err := unix.Write(f.fds[i], b)
		if err != nil {
			f.t.Errorf("write to %d: %v", i, err)
			return
		}
		b = b[n:]
	}
}

func (f programSide) out(p string)     { f.write(1, p) }
func (f programSide) err(p string)     { f.write(2, p) }
func (f programSide) message(p string) { f.write(3, p) }

func (f programSide) closeAll() {
	for i := range f.fds {
		f.close(i)
	}
}

func (f programSide) close(i int) {
	if f.fds[i] >= 0 {
		unix.Close(f.fds[i])
	}
}

// newTestStream creates a stream and the program's side of it.
func newTestStream(t *testing.T) (*stream, programSide) {
	t.Helper()
	ours, theirs, err := newChannels()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStream(ours[1], ours[2], ours[3], false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close(); unix.Close(ours[0]) })
	return s, programSide{t, theirs}
}

// receiveItems receives n items, or fewer if an error occurs, and returns them
// in a short form.
func receiveItems(s *stream, n int) string {
	var out []string
	for range n {
		from, p, err := s.receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.EOF
			}
			out = append(out, err.Error())
			break
		}
		out = append(out, fmt.Sprintf("%d:%s", from, p))
	}
	return strings.Join(out, "|")
}

func TestStreamKeepsOrder(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(programSide)
		n    int
		want string
	}{
		"output before a message":            {func(f programSide) { f.out("a"); f.message("m\n") }, 2, "1:a|3:m"},
		"both outputs":                       {func(f programSide) { f.err("e"); f.out("o"); f.message("m\n") }, 3, "1:o|2:e|3:m"},
		"only output":                        {func(f programSide) { f.err("e") }, 1, "2:e"},
		"two messages at once":               {func(f programSide) { f.message("m\nn\n") }, 2, "3:m|3:n"},
		"an empty message":                   {func(f programSide) { f.message("\nn\n") }, 2, "3:|3:n"},
		"a message in parts":                 {func(f programSide) { f.message("m"); f.message("m"); f.message("m\nn"); f.message("\n") }, 2, "3:mmm|3:n"},
		"the end":                            {func(f programSide) { f.out("o"); f.message("m\n"); f.closeAll() }, 5, "1:o|3:m|EOF"},
		"half a message at the end":          {func(f programSide) { f.out("o"); f.message("half"); f.closeAll() }, 5, "1:o|EOF"},
		"output after the channel closes":    {func(f programSide) { f.close(3); f.out("o"); f.close(1); f.close(2) }, 5, "1:o|EOF"},
		"one output ends early":              {func(f programSide) { f.close(1); f.err("e"); f.message("m\n"); f.close(3); f.close(2) }, 5, "2:e|3:m|EOF"},
		"no output at all":                   {func(f programSide) { f.close(1); f.close(2); f.message("m\n"); f.close(3) }, 5, "3:m|EOF"},
		"bytes that are not text":            {func(f programSide) { f.out("\x00\xff\n"); f.message("\x00\xff\n") }, 2, "1:\x00\xff\n|3:\x00\xff"},
		"output after a placed message":      {func(f programSide) { f.out("ab"); f.err("e"); f.message("=2,0\nm\n"); f.out("c") }, 4, "1:ab|3:m|1:c|2:e"},
		"a place before a place":             {func(f programSide) { f.out("abc"); f.message("=1,0\nm\n=1,0\nn\n") }, 5, "1:a|3:m|1:b|3:n|1:c"},
		"a place is for one message":         {func(f programSide) { f.message("=0,0\nm\nn\n"); f.out("a") }, 3, "3:m|1:a|3:n"},
		"a place at the end":                 {func(f programSide) { f.out("ab"); f.message("=1,0\n"); f.closeAll() }, 3, "1:ab|EOF"},
		"invalid places":                     {func(f programSide) { f.message("=1\n=1,\n=,1\n=-1,1\n=1,2,3\n= 1,2\n=1,99999999999\n") }, 7, "3:=1|3:=1,|3:=,1|3:=-1,1|3:=1,2,3|3:= 1,2|3:=1,99999999999"},
		"output does not wait for a message": {func(f programSide) { f.message("half"); f.out("o") }, 1, "1:o"},
	} {
		t.Run(what, func(t *testing.T) {
			s, f := newTestStream(t)
			c.do(f)
			if got := receiveItems(s, c.n); got != c.want {
				t.Errorf("heard %q, want %q", got, c.want)
			}
		})
	}
}

// The host receives all output before a later message, regardless of the output's size. Output in
// excess of a pipe's capacity must have been read before the message was sent.
func TestStreamReturnsOutputBeforeMessage(t *testing.T) {
	s, f := newTestStream(t)
	const n = 5 * pipeCapacity
	go func() {
		for i := range 20 {
			f.out(strings.Repeat("x", n))
			f.message(fmt.Sprintf("%d\n", i))
		}
		f.closeAll()
	}()
	size, next := 0, 0
	for {
		from, p, err := s.receive()
		if err != nil {
			if !errors.Is(err, io.EOF) || next != 20 {
				t.Errorf("after %d messages: %v", next, err)
			}
			return
		}
		if from == brig.FromStdout {
			size += len(p)
			continue
		}
		if string(p) != fmt.Sprint(next) || size < (next+1)*n {
			t.Fatalf("message %q came after %d bytes, want number %d after at least %d", p, size, next, (next+1)*n)
		}
		next++
	}
}

// A program that writes without a pause does not delay its messages.
func TestStreamFloodDoesNotDelayMessages(t *testing.T) {
	s, f := newTestStream(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				f.out(strings.Repeat("x", 4096))
			}
		}
	}()
	go func() {
		for i := range 100 {
			f.message(fmt.Sprintf("%d\n", i))
		}
	}()
	parts, messages := 0, 0
	for messages < 100 && parts < 100_000 {
		from, _, err := s.receive()
		if err != nil {
			t.Fatal(err)
		}
		if from == brig.FromMessage {
			messages++
		} else {
			parts++
		}
	}
	if messages != 100 {
		t.Errorf("among %d parts of the output came %d messages", parts, messages)
	}
	close(stop)
	for done := false; !done; {
		select {
		case <-stopped:
			done = true
		default:
			s.disconnect() // ends a pending receive
			_, _, _ = s.receive()
		}
	}
}

// The channel ends when the program has ended, even if its children keep it
// open. The program's remaining output is received first.
func TestStreamEndsWithProgram(t *testing.T) {
	s, f := newTestStream(t)
	f.out("last words")
	f.message("m\n")
	s.disconnect()
	if got, want := receiveItems(s, 9), "1:last words|3:m|EOF"; got != want {
		t.Errorf("heard %q, want %q", got, want)
	}
	f.closeAll()

	s, f = newTestStream(t)
	got := make(chan string)
	go func() { got <- receiveItems(s, 9) }()
	time.Sleep(20 * time.Millisecond) // until receive blocks
	s.disconnect()
	s.disconnect()
	if h := <-got; h != "EOF" {
		t.Errorf("who waited heard %q", h)
	}
	if h := receiveItems(s, 1); h != "EOF" {
		t.Errorf("afterwards one hears %q", h)
	}
	f.closeAll()
}

func TestStreamCloseEndsReceive(t *testing.T) {
	for range 50 {
		s, f := newTestStream(t)
		got := make(chan error)
		go func() {
			for {
				if _, _, err := s.receive(); err != nil {
					got <- err
					return
				}
			}
		}()
		go func() { _, _ = unix.Write(f.fds[1], []byte("something")) }()
		s.close()
		s.close()
		s.disconnect()
		if err := <-got; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("who waited was told %v", err)
		}
		if err := s.send([]byte("x\n")); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("send after close: %v", err)
		}
	}
}

// A stream of a process without messages ends when it is closed while the end of the
// process is reported. Closing a process makes both happen at about the same time.
func TestStreamClosesWhileProcessEnds(t *testing.T) {
	for i := range 10000 {
		ours, theirs, err := newChannels()
		if err != nil {
			t.Fatal(err)
		}
		s, err := newStream(ours[1], ours[2], ours[3], true)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			for {
				if _, _, err := s.receive(); err != nil {
					done <- err
					return
				}
			}
		}()
		spin(60 * time.Microsecond) // by then, it waits for output
		s.disconnect()
		spin(time.Duration(i%300) * 100 * time.Nanosecond)
		s.close()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("stream %d does not end", i)
		}
		unix.Close(ours[0])
		theirs.close()
	}
}

// spin waits for a time that is too short for a sleep.
func spin(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}

// If a program does not read its messages, the sender blocks until the stream
// is closed or the program ends.
func TestStreamSendBlocks(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 8<<20)
	for what, end := range map[string]func(*stream, programSide){
		"close":   func(s *stream, _ programSide) { s.close() },
		"hang-up": func(s *stream, _ programSide) { s.disconnect() },
		"its end": func(_ *stream, f programSide) { f.close(3) },
	} {
		t.Run(what, func(t *testing.T) {
			s, f := newTestStream(t)
			got := make(chan error)
			go func() { got <- s.send(big) }()
			select {
			case err := <-got:
				t.Fatalf("nobody reads, and send says %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			end(s, f)
			select {
			case err := <-got:
				if err == nil {
					t.Error("send says that all is well")
				}
			case <-time.After(time.Minute):
				t.Error("send goes on")
			}
		})
	}
	s, f := newTestStream(t)
	got := make(chan error)
	go func() { got <- s.send(big) }()
	buf, n := make([]byte, 1<<16), 0
	for n < len(big) {
		m, err := unix.Read(f.fds[3], buf)
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	if err := <-got; err != nil {
		t.Errorf("send of %d bytes: %v", len(big), err)
	}
}

// The host does not buffer an endless message.
func TestStreamRejectsLongMessage(t *testing.T) {
	s, f := newTestStream(t)
	go func() {
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range maxMessage/len(chunk) + 2 {
			for b := chunk; len(b) > 0; {
				n, err := unix.SendmsgN(f.fds[3], b, nil, nil, unix.MSG_NOSIGNAL)
				if err != nil {
					return // the reader has closed the channel
				}
				b = b[n:]
			}
		}
	}()
	_, p, err := s.receive()
	if brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Hint == "" {
		t.Errorf("received %d bytes, %v", len(p), err)
	}
	s.close()
	f.closeAll()
}

// FuzzStream checks that data of a guest is received as exactly its lines and
// its output, however it is split.
func FuzzStream(f *testing.F) {
	f.Add([]byte("a\nb\n"), []byte("out"), uint8(1))
	f.Add([]byte("\n\n\nhalf"), []byte(""), uint8(3))
	f.Add([]byte("=1,0\nm\n=0,0\n=x\n"), []byte("out"), uint8(3))
	f.Add([]byte("{\"type\":\"ready\"}\n\x00\xff\n"), []byte("\n\n"), uint8(200))
	f.Fuzz(func(t *testing.T, control, output []byte, step uint8) {
		if len(control)+len(output) > pipeCapacity {
			return
		}
		s, programSide := newTestStream(t)
		go func() {
			programSide.out(string(output))
			for rest := control; len(rest) > 0; {
				n := min(len(rest), int(step)+1)
				programSide.message(string(rest[:n]))
				rest = rest[n:]
			}
			programSide.closeAll()
		}()
		var lines, out []byte
		for {
			from, p, err := s.receive()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			if from == brig.FromMessage {
				if bytes.IndexByte(p, '\n') >= 0 {
					t.Fatalf("a message of two lines: %q", p)
				}
				lines = append(append(lines, p...), '\n')
			} else {
				out = append(out, p...)
			}
		}
		var whole []byte
		for line := range bytes.Lines(control) {
			if text, ended := bytes.CutSuffix(line, []byte("\n")); ended {
				if _, place := parsePosition(text); !place {
					whole = append(whole, line...)
				}
			}
		}
		if !bytes.Equal(lines, whole) || !bytes.Equal(out, output) {
			t.Errorf("of %q and %q came %q and %q", control, output, lines, out)
		}
	})
}
