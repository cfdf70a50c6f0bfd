package guest

import "testing"

// A command runs as the user from the image's configuration, unless that is the agent's own user.
func TestCommandRunsAsImageUser(t *testing.T) {
	for name, want := range map[string]uint32{
		"": 1000, "user": 1000, "root": 0, "101:102": 101, "0:0": 1000, "64999:64999": 1000, "64999:5": 1000, "5:64999": 1000, "x:y": 1000,
	} {
		if u := newUser(name); u.uid != want {
			t.Errorf("%q is user %d, want %d", name, u.uid, want)
		}
	}
}
