// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Part is the report of a part of a run: of a shard, or of one of several proxiers.
type Part struct {
	Path string // where it was read, for messages
	Report
}

// Join makes one report of the parts of a run, which do not overlap. It returns an error for parts that do not belong
// together: of other versions or features, of clusters of other kinds, with the same scenario on the same proxier, or
// of shards of another number. Where shards are missing, it returns the report of those that are there, whose
// Suite.Shard names them, and a *MissingError.
func Join(parts ...Part) (Report, error) {
	if err := fitting(parts); err != nil {
		return Report{}, err
	}
	shards, err := shardsOf(parts)
	missing := (*MissingError)(nil)
	if err != nil && !errors.As(err, &missing) {
		return Report{}, err
	}
	reports := make([]Report, len(parts))
	for i, p := range parts {
		reports[i] = p.Report
	}
	out := Merge(reports...)
	out.Settings, out.Suite.Shard, out.Suite.Whole = parts[0].Settings, shards, parts[0].Suite.Whole
	if shards == "" {
		out.Suite.Whole = 0
	}
	for _, p := range parts {
		if out.WallMS = max(out.WallMS, p.WallMS); out.Date.IsZero() || p.Date.Before(out.Date) {
			out.Date = p.Date
		}
	}
	return out, err
}

// MissingError says which parts of a run are missing.
type MissingError struct{ Text string }

func (e *MissingError) Error() string { return e.Text }

// fitting returns an error if parts differ in what parts of one run have in common, or hold the same cell.
func fitting(parts []Part) error {
	var errs []error
	first := parts[0]
	versions, cells := map[string]Part{}, map[[2]string]Part{}
	version := func(name, version string, p Part) {
		if before, known := versions[name]; !known {
			versions[name] = Part{Path: p.Path, Report: Report{Suite: Suite{Version: version}}}
		} else if old := before.Suite.Version; old != version {
			errs = append(errs, fmt.Errorf("%s is of %s %s, and %s of %s: judge all parts alike", before.Path, name,
				old, p.Path, version))
		}
	}
	for _, p := range parts {
		version("viplab", p.Suite.Version, p)
		for _, x := range p.Proxiers {
			version("proxier "+x.Name, x.Version, p)
			if x.Features != nil {
				version("proxier "+x.Name+" with the features", fmt.Sprint(x.Features), p)
			}
		}
		if p.Settings != first.Settings {
			errs = append(errs, fmt.Errorf("%s and %s ran in clusters of different kinds (%+v and %+v): merge each kind "+
				"by itself", first.Path, p.Path, first.Settings, p.Settings))
		}
		var twice []string
		other := ""
		for _, x := range p.Results {
			cell := [2]string{x.Proxier, x.Scenario}
			if before, known := cells[cell]; known {
				twice, other = append(twice, x.Scenario+" on "+x.Proxier), before.Path
			}
			cells[cell] = p
		}
		if len(twice) > 0 {
			errs = append(errs, fmt.Errorf("%s and %s overlap: both have %s", other, p.Path, few(twice)))
		}
	}
	return errors.Join(errs...)
}

// few names some of many things.
func few(names []string) string {
	const most = 3
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// shardsOf returns which shards the parts are, empty if they are all of a run, and a *MissingError if some are missing.
func shardsOf(parts []Part) (string, error) {
	var missing []string
	shards := ""
	for _, proxier := range proxiersOf(parts) {
		var there []int
		of, whole, scenarios := 0, 0, 0
		for _, p := range parts {
			if !slices.ContainsFunc(p.Proxiers, func(x Proxier) bool { return x.Name == proxier }) || p.Suite.Shard == "" {
				continue
			}
			for text := range strings.SplitSeq(p.Suite.Shard, ",") {
				shard, shards, err := ParseShard(text)
				if err != nil {
					return "", fmt.Errorf("%s: shard %w", p.Path, err)
				}
				if of != 0 && of != shards || whole != 0 && whole != p.Suite.Whole {
					return "", fmt.Errorf("%s is shard %d of %d (of %d scenarios), and another one is of %d (of %d): merge the "+
						"shards of one run", p.Path, shard, shards, p.Suite.Whole, of, whole)
				}
				there, of, whole = append(there, shard), shards, p.Suite.Whole
			}
			scenarios += p.Suite.Scenarios
		}
		var found, absent []string
		for i := 1; i <= of; i++ {
			text := fmt.Sprintf("%d/%d", i, of)
			if slices.Contains(there, i) {
				found = append(found, text)
			} else {
				absent = append(absent, text)
			}
		}
		switch {
		case len(absent) > 0:
			shards = strings.Join(found, ",")
			missing = append(missing, fmt.Sprintf("%s lacks shard %s", proxier, strings.Join(absent, ", ")))
		case scenarios < whole:
			return "", fmt.Errorf("the shards of %s have %d of %d scenarios: they do not belong to one run", proxier, scenarios,
				whole)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return shards, &MissingError{strings.Join(missing, "; ")}
}

func proxiersOf(parts []Part) (names []string) {
	for _, p := range parts {
		for _, x := range p.Proxiers {
			if !slices.Contains(names, x.Name) {
				names = append(names, x.Name)
			}
		}
	}
	return names
}

// ParseShard reads "I/N", with 1 <= I <= N.
func ParseShard(text string) (shard, shards int, err error) {
	var rest string
	n, _ := fmt.Sscanf(text+" ", "%d/%d%s", &shard, &shards, &rest)
	if n != 2 || shard < 1 || shard > shards {
		return 0, 0, fmt.Errorf("%q: want I/N with 1 <= I <= N, for example 1/4", text)
	}
	return shard, shards, nil
}
