package egress

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// fewFlows is what one sandbox may have while most of the room is taken,
	// so that a few sandboxes cannot keep all others from going out.
	fewFlows = 64
	// wideFlows is how many connections of a sandbox have wide buffers, and
	// wideRoom how many of all sandboxes: some 500 MB at most. What is beyond
	// gets narrow ones, and is slower.
	wideFlows = 64
	wideRoom  = 256
	// What the network stack keeps of a connection each way, in bytes. It is a
	// way within this machine: wide ones are enough for its full speed.
	wideBuffer   = 1 << 20
	narrowBuffer = 32 << 10
)

// Room is what the connections of a server's sandboxes have together: each takes
// a descriptor of the server's and some of its memory, and many sandboxes with as
// many as each may have would take all of them.
type Room struct {
	most int64
	open atomic.Int64
}

// NewRoom returns room for so many connections.
func NewRoom(most int) *Room { return &Room{most: int64(most)} }

// RoomHere returns room for half as many connections as this process may have
// descriptors, and at most 8192.
func RoomHere() *Room {
	most := int64(8192)
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil && l.Cur/2 < uint64(most) {
		most = int64(l.Cur / 2)
	}
	return &Room{most: most}
}

// take takes the room of one connection of a sandbox that has own others. It
// reports false when there is none.
func (r *Room) take(own int) bool {
	n := r.open.Add(1)
	if n > r.most || n > r.most/2 && own >= fewFlows {
		r.open.Add(-1)
		return false
	}
	return true
}

func (r *Room) leave() { r.open.Add(-1) }

// buffer is how much is kept each way of a connection of a sandbox that has
// own in all.
func (r *Room) buffer(own int) int {
	if own > wideFlows || r.open.Load() > wideRoom {
		return narrowBuffer
	}
	return wideBuffer
}
