package wire

import "github.com/brig-run/brig"

func (s *Screening) noun() *brig.Screening {
	if s == nil {
		return nil
	}
	out := &brig.Screening{Others: s.Others, Rules: map[brig.Language]brig.ScreenRules{}}
	for lang, r := range map[brig.Language]*ScreenRules{brig.Python: s.Python, brig.JavaScript: s.JavaScript} {
		if r != nil {
			out.Rules[lang] = brig.ScreenRules{
				Imports: r.Imports, Calls: r.Calls, Attributes: r.Attributes, Only: r.Only, Allow: r.Allow, Commands: r.Commands,
			}
		}
	}
	return out
}

func fromScreening(s *brig.Screening) *Screening {
	if s == nil {
		return nil
	}
	out := &Screening{Others: s.Others}
	for lang, to := range map[brig.Language]**ScreenRules{brig.Python: &out.Python, brig.JavaScript: &out.JavaScript} {
		if r, ok := s.Rules[lang]; ok {
			*to = &ScreenRules{
				Imports: r.Imports, Calls: r.Calls, Attributes: r.Attributes, Only: r.Only, Allow: r.Allow, Commands: r.Commands,
			}
		}
	}
	return out
}
