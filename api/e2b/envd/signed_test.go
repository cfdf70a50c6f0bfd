package envd

import (
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/filesystempb"
)

// A signature is valid for only one path, operation and user. If two requests have the same
// signed text, at most one of them is accepted.
func TestSignatureIsUnambiguous(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	now := time.Unix(1_700_000_000, 0)
	parts := []string{"", "a", "user", "root", "read", "write", "a:read:user", "a:write:user", ":", "read:user", "a:read", "user:" + token, "1800000000"}
	seen := map[string]string{}
	asked, allowed := 0, 0
	for _, path := range parts {
		for _, user := range parts {
			for _, op := range []string{"read", "write"} {
				for _, exp := range []int64{0, 1_800_000_000} {
					method := map[string]string{"read": "GET", "write": "POST"}[op]
					signature := Signature(path, op, user, token, exp)
					q := url.Values{"path": {path}, "username": {user}, "signature": {signature}}
					if exp != 0 {
						q.Set("signature_expiration", "1800000000")
					}
					asked++
					if authorize(httptest.NewRequest(method, "/files?"+q.Encode(), nil), token, at(now)) != nil {
						continue
					}
					allowed++
					what := method + " " + path + " as " + user
					if other, ok := seen[signature]; ok && other != what {
						t.Errorf("one signature is for %q and for %q", other, what)
					}
					seen[signature] = what
				}
			}
		}
	}
	// Only a colon in the user is rejected, because paths may contain colons.
	if plain := 7 * len(parts) * 4; allowed != plain {
		t.Errorf("%d of %d requests were accepted, want %d", allowed, asked, plain)
	}
	good := url.Values{"path": {"a"}, "username": {"user"}, "signature": {Signature("a", "read", "user", token, 7)}}
	for what, query := range map[string]string{
		"two paths": good.Encode() + "&path=b", "two users": good.Encode() + "&username=root", "another way to write the end": good.Encode() + "&signature_expiration=%2B7",
	} {
		if err := authorize(httptest.NewRequest("GET", "/files?"+query, nil), token, at(time.Unix(1, 0))); err != errSignature {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The entry of a link has the type and mode of the link's target.
func TestLinkEntryDescribesTarget(t *testing.T) {
	for _, c := range []struct {
		to   brig.EntryType
		mode uint32
		want pb.FileType
	}{{brig.RegularFile, 0o600, pb.FileType_FILE_TYPE_FILE}, {brig.Directory, 0o750, pb.FileType_FILE_TYPE_DIRECTORY}, {"", 0, pb.FileType_FILE_TYPE_UNSPECIFIED}} {
		e := entry(&brig.Entry{Name: "l", Path: "/l", Type: brig.Symlink, Mode: 0o777, Target: "/to", TargetType: c.to, TargetMode: c.mode})
		if e.Type != c.want || e.Mode != c.mode || !e.IsSymlink || e.GetSymlinkTarget() != "/to" || e.Permissions != "Lrwxrwxrwx" {
			t.Errorf("to a %q: %v", c.to, e)
		}
	}
}

// at returns a clock that is stopped at t.
func at(t time.Time) brig.Clock { return brig.WallClock(func() time.Time { return t }) }
