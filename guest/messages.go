package guest

import (
	"bytes"
	"net"
	"slices"
	"sync"

	"github.com/brig-run/brig"
)

// maxMessage is the maximum length of a message from a process, in bytes. The
// channel fails if a message is longer.
const maxMessage = 64 * brig.MiB

// freeMessages is the maximum size of a message buffer, in bytes, that is not charged to a budget.
const freeMessages = 256 << 10

// messageBuffer holds the messages of a process that have not been received yet, and the beginning
// of an incomplete message. The code of a guest determines its size, so a buffer larger than
// freeMessages is charged to a budget. While a buffer grows, its former array is not charged.
type messageBuffer struct {
	mu          sync.Mutex // guards the fields below
	data        []byte
	begin       int // index in data of the first byte that was not received
	searched    int // length of the prefix after begin that contains no line feed
	budget      brig.MessageBudget
	charged     int
	lineCharged bool // the charge is for the line that was returned last
	closed      bool
}

// limit sets the budget for all messages that the buffer holds from now on.
func (b *messageBuffer) limit(budget brig.MessageBudget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charged == 0 { // otherwise the owner of the process is the same
		b.budget = budget
	}
}

// add appends data of the process. After an error, the buffer is empty, and every
// further call returns an error.
func (b *messageBuffer) add(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return net.ErrClosed
	}
	b.refundLine()
	unread := len(b.data) - b.begin
	if unread+len(p) > maxMessage {
		b.release()
		return brig.Errorf(brig.FailedPrecondition, "the interpreter sent a message that is too long").
			WithHint("write large results to files")
	}
	if len(b.data)+len(p) > cap(b.data) && !b.makeRoom(unread, len(p)) {
		b.release()
		return brig.Errorf(brig.FailedPrecondition, "the tenant's interpreters send too many large messages at the same time").
			WithHint("write large results to files")
	}
	b.data = append(b.data, p...)
	return nil
}

// makeRoom makes room for n bytes after the unread data, and reports whether the budget allows it.
// The caller holds b.mu.
func (b *messageBuffer) makeRoom(unread, n int) bool {
	if unread+n <= cap(b.data) {
		b.data, b.begin = append(b.data[:0], b.data[b.begin:]...), 0
		return true
	}
	// The buffer grows to twice the size of its content if the budget allows it.
	size := min(2*(unread+n), maxMessage)
	if unread+n <= freeMessages {
		size = min(size, freeMessages)
	}
	if !b.charge(size) {
		if size = min(unread+n+smallStep, maxMessage); !b.charge(size) {
			return false
		}
	}
	b.data, b.begin = append(make([]byte, 0, size), b.data[b.begin:]...), 0
	return true
}

// smallStep is the minimum growth of a buffer, in bytes.
const smallStep = 1 << 20

// charge charges the missing bytes for a buffer of the given size, and reports whether the budget
// allows it. The caller holds b.mu.
func (b *messageBuffer) charge(size int) bool {
	more := size - freeMessages - b.charged
	if b.budget == nil || more <= 0 {
		return true
	}
	if !b.budget.Charge(more) {
		return false
	}
	b.charged += more
	return true
}

// line returns the next line without its line feed, if it is complete. The line is valid
// until the next call of line or add.
func (b *messageBuffer) line() (line []byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refundLine()
	if b.begin == len(b.data) {
		b.data, b.begin = b.data[:0], 0
	}
	unread := b.data[b.begin:]
	i := bytes.IndexByte(unread[b.searched:], '\n')
	if i < 0 {
		b.searched = len(unread)
		return nil, false
	}
	i += b.searched
	line, b.begin, b.searched = unread[:i:i], b.begin+i+1, 0
	// The caller may hold the line for a long time, so move the rest of the data out of a large
	// array.
	if rest := b.data[b.begin:]; cap(b.data) > freeMessages && len(rest) <= freeMessages {
		b.data, b.begin, b.lineCharged = bytes.Clone(rest), 0, true
	}
	return line, true
}

// refundLine refunds the charge for a line that is no longer valid. The caller holds b.mu.
func (b *messageBuffer) refundLine() {
	if b.lineCharged {
		b.lineCharged = false
		b.refund()
	}
}

// unread returns a copy of the data that has not been received yet.
func (b *messageBuffer) unread() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.data[b.begin:])
}

// close releases the buffer, and its part of the budget.
func (b *messageBuffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release()
}

// release makes the buffer unusable. The caller holds b.mu.
func (b *messageBuffer) release() {
	b.closed, b.lineCharged, b.data, b.begin, b.searched = true, false, nil, 0, 0
	b.refund()
}

// refund returns the charged bytes to the budget. The caller holds b.mu.
func (b *messageBuffer) refund() {
	if b.charged > 0 {
		b.budget.Refund(b.charged)
		b.charged = 0
	}
}
