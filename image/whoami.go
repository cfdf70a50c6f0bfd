package image

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// resolveConfig checks a configuration against the image's files and returns notes on
// the ignored values. The caller calls finish first.
func (f *finisher) resolveConfig(c *brig.ImageConfig, user string) (notes []string, err error) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if dir := c.WorkingDir; dir != "" && dir != "/" {
		// A link that leads out of the image does not resolve.
		if fi, err := f.root.Stat(strings.TrimPrefix(path.Clean(dir), "/")); err != nil || !fi.IsDir() {
			note("working directory %s is not used: the image does not have it", quote(dir))
			c.WorkingDir = ""
		}
	}
	uid, gid, err := f.resolveUser(user)
	switch {
	case err != nil:
		return nil, err
	case user == "":
	case uid == 0:
		c.User = "root"
	case uid == userID:
		c.User = "user"
	case uid < 0:
		c.User = "user"
		note("user %s is not used: it does not exist in the image, or is not permitted; everything runs as user %d", quote(user), userID)
	default:
		c.User, c.Account = "user", fmt.Sprintf("%d:%d", uid, gid)
		note("the image's entrypoint runs as its user %s (%s), other commands as user %d", quote(user), c.Account, userID)
	}
	return notes, nil
}

// resolveUser resolves the user of a configuration, "name:group", in which each part may be a
// number. It returns user -1 if the user cannot be used.
func (f *finisher) resolveUser(user string) (uid, gid int, err error) {
	name, group, grouped := strings.Cut(user, ":")
	passwd, err := f.readAccounts("etc/passwd")
	if err != nil {
		return -1, 0, err
	}
	uid, gid = findAccount(passwd, name)
	if gid < 0 { // a numeric user does not imply the root group
		gid = uid
	}
	if grouped && group != "" {
		groups, err := f.readAccounts("etc/group")
		if err != nil {
			return -1, 0, err
		}
		gid, _ = findAccount(groups, group)
	}
	if !wire.IsAccountID(uid) || !wire.IsAccountID(gid) {
		return -1, 0, nil
	}
	return uid, gid, nil
}

// findAccount looks up a name or a number in an account file. It returns the
// number and the next field, or -1 for a missing value. A number does not have
// to be listed.
func findAccount(file []byte, name string) (id, next int) {
	want, err := strconv.ParseUint(name, 10, 31)
	numeric := err == nil
	for line := range bytes.Lines(file) {
		fields := strings.Split(strings.TrimSuffix(string(line), "\n"), ":")
		if len(fields) < 3 || fields[0] == "" {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 31)
		if err != nil || fields[0] != name && !(numeric && n == want) {
			continue
		}
		next = -1
		if len(fields) > 3 {
			if g, err := strconv.ParseUint(fields[3], 10, 31); err == nil {
				next = int(g)
			}
		}
		return int(n), next
	}
	if numeric {
		return int(want), -1
	}
	return -1, -1
}
