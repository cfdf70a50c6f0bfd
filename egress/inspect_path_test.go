package egress

import (
	"slices"
	"strings"
	"testing"
)

func TestReadings(t *testing.T) {
	for in, want := range map[string]string{ // the prefix "!" marks a rejection
		"/":                                "/",
		"/a/b":                             "/a/b",
		"/a/b/":                            "/a/b/",
		"/a%20b":                           "/a b",
		"/%61":                             "/a",
		"/a...b/.c/..d":                    "/a...b/.c/..d",
		"/caf%C3%A9":                       "/café",
		"/@scope%2fname":                   "/@scope/name /@scope%2Fname",
		"/a%2Fb%2fc":                       "/a/b/c /a%2Fb%2Fc",
		"/a//b":                            "/a//b /a/b",
		"//a":                              "//a /a",
		"/a;x=1/b":                         "/a;x=1/b /a/b",
		"/%2561":                           "/%61 /a",
		"/100%25":                          "/100%",
		"/a%252fb":                         "/a%2fb /a/b",
		"/a%25zz%2561":                     "/a%zz%61 /a%zza",
		"/50%25/a":                         "/50%/a",
		"":                                 "!its path is none",
		"*":                                "!its path is none",
		"a":                                "!its path is none",
		"/%":                               "!its path is none",
		"/%zz":                             "!its path is none",
		"/..":                              "!its path has dot segments",
		"/a/../b":                          "!its path has dot segments",
		"/a/./b":                           "!its path has dot segments",
		"/.":                               "!its path has dot segments",
		"/%2e%2e/b":                        "!its path has dot segments",
		"/a%2f..%2fb":                      "!its path has dot segments",
		"/.%2e":                            "!its path has dot segments",
		"/%252e%252e/b":                    "!its path has dot segments",
		"/a/%25zz/%252e%252e/%252e%252e/b": "!its path has dot segments",
		"/a/%252e%252e/b%25":               "!its path has dot segments",
		"/a/..;/b":                         "!its path has dot segments",
		"/a/..;x=1":                        "!its path has dot segments",
		"/a/..%3bx":                        "!its path has dot segments",
		`/a\b`:                             "!its path has a backslash or a control character",
		"/a%5cb":                           "!its path has a backslash or a control character",
		"/a%255cb":                         "!its path has a backslash or a control character",
		"/a%00b":                           "!its path has a backslash or a control character",
		"/a%2500":                          "!its path has a backslash or a control character",
		"/a%0d%0aX":                        "!its path has a backslash or a control character",
		"/a%7f":                            "!its path has a backslash or a control character",
		"/%c0%af":                          "!its path is not UTF-8",
		"/%ff":                             "!its path is not UTF-8",
		"/caf%C3%A9/\uff21":                "/café/Ａ /café/A",
		"/v1/\uff0e\uff0e/admin":           "!its path has dot segments",
		"/v1/%EF%BC%8E%EF%BC%8E/admin":     "!its path has dot segments",
		"/v1/\u2025/admin":                 "!its path has dot segments", // one character for two dots
		"/v1/.\u200b./admin":               "!its path has dot segments",
		"/v1/\u3002\u3002/admin":           "!its path has dot segments",
		"/v1/..\u2215admin":                "!its path has dot segments",
		"/v1\uff0f..\uff0fadmin":           "!its path has dot segments",
		"/v1/\uff052e\uff052e/admin":       "!its path has dot segments",
		"/v1/x\uff3cy":                     `!its path has a backslash or a control character`,
		"/v1/.. /admin":                    "!its path has dot segments",
		"/v1/%2e%2e%20/admin":              "!its path has dot segments",
		"/v1/.../admin":                    "!its path has dot segments",
		"/v1/%u002e%u002e/admin":           "!its path is none",
		"/v1/%25u002e%25u002e/admin":       "!its path has an invalid escape",
		"/v1/%C0%AE%C0%AE/admin":           "!its path is not UTF-8",
		"/v1/%E0%80%AE%E0%80%AE/admin":     "!its path is not UTF-8",
		"/v1/a%C2%85b":                     "!its path has a character that some servers treat as a line break or ignore",
		"/v1/a%EF%BF%BDb":                  "!its path has a character that some servers treat as a line break or ignore",
		"/wiki/\u0645\u06cc\u200c\u062e":   "/wiki/\u0645\u06cc\u200c\u062e /wiki/\u0645\u06cc\u062e",
		"/col\u00b7lecci\u00f3":            "/col\u00b7lecci\u00f3 /col.lecci\u00f3",
		"/admin.":                          "/admin. /admin",
		"/admin%20":                        "/admin  /admin",
		"/admin%3fx":                       "/admin?x /admin",
		"/a;x=%2e%2e/b":                    "/a;x=../b /a/b",
		"/%2525252525252561b":              "!its path is escaped over and over",
	} {
		paths, why := readings(in)
		if refusal, ok := strings.CutPrefix(want, "!"); ok {
			if why != refusal || len(paths) > 0 {
				t.Errorf("%s: %q, refused as %q", in, paths, why)
			}
			continue
		}
		if why != "" || len(paths) == 0 {
			t.Errorf("%s: refused as %q", in, why)
			continue
		}
		if usual, _, _ := strings.Cut(want, " /"); paths[0] != usual {
			t.Errorf("%s: is %q first", in, paths)
		}
		for p := range strings.SplitSeq(strings.ReplaceAll(want, " /", "\x00/"), "\x00") {
			if !slices.Contains(paths, p) {
				t.Errorf("%s: %q is not among %q", in, p, paths)
			}
		}
	}
}
