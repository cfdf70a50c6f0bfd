package agent

import "testing"

// The process limit of a sandbox holds for each user, so only some users besides user and root may
// run commands. Those that have run commands may do so again.
func TestOtherUsersAreLimited(t *testing.T) {
	var o otherUsers
	for _, c := range []struct {
		uid  uint32
		want bool
	}{{0, true}, {userID, true}, {1001, true}, {1002, true}, {1003, false}, {1001, true}, {1002, true}, {0, true}, {userID, true}, {1004, false}} {
		if got := o.add(c.uid); got != c.want {
			t.Errorf("user %d may run commands: %t, want %t", c.uid, got, c.want)
		}
	}
	if len(o.uids) != maxOtherUsers {
		t.Errorf("%d other users have run commands, want %d", len(o.uids), maxOtherUsers)
	}
}
