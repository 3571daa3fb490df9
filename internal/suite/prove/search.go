// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/viplab/viplab/internal/suite/report"
)

// Found is the result of a search by generated cases.
type Found struct {
	// Case is the ID of the first case that failed, "" if none did. Kinds are how it disagreed with the oracle.
	Case  string   `json:"case,omitempty"`
	Kinds []string `json:"kinds,omitempty"`
	// Cases and States are how many were played.
	Cases  int   `json:"cases"`
	States int   `json:"states"`
	TookMS int64 `json:"took_ms"`
	// Touched is the number of times that the fault took effect.
	Touched int `json:"touched"`
}

// Search is the search for one fault on one proxier, or the control if Fault is empty: a search without a fault, which
// must find nothing.
type Search struct {
	Fault   string  `json:"fault"`
	Proxier string  `json:"proxier"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	Found
}

// Searcher searches for a fault in a proxier by at most so many generated cases, all of them with cases 0. It may be
// called concurrently.
type Searcher func(ctx context.Context, fault, proxier string, cases int) (Found, error)

// Searches are searches for all chosen faults.
type Searches struct {
	Version  string   `json:"version"`
	Kernel   string   `json:"kernel"`
	Controls []Search `json:"controls"`
	Searches []Search `json:"searches"`
}

// DoSearch searches for each fault that Options.Only chooses on each proxier. The controls play as many cases as the
// longest successful search on the proxier. Searches that have no result when the context ends are NotRun. It returns
// an error if there is nothing to search.
func DoSearch(ctx context.Context, o Options, search Searcher, listen func(Search)) (*Searches, error) {
	chosen, _, err := o.Select()
	if err != nil {
		return nil, err
	}
	all := &Searches{}
	for _, f := range chosen {
		for _, proxier := range o.Proxiers {
			s := Search{Fault: f.Name, Proxier: proxier, Verdict: Foreign, Reason: f.Beyond()}
			if s.Reason == "" {
				s.Reason = o.foreign(f, proxier)
			}
			if s.Reason == "" {
				s.Verdict = ""
			}
			all.Searches = append(all.Searches, s)
		}
	}
	o.searchAll(all.Searches, func(s *Search) { s.run(ctx, search, o.idle(s.Proxier)) }, listen)
	for _, proxier := range o.Proxiers {
		all.Controls = append(all.Controls, Search{Proxier: proxier})
	}
	o.searchAll(all.Controls, func(s *Search) { s.control(ctx, search, all.longest(s.Proxier)) }, listen)
	return all, nil
}

// searchAll calls do for those searches that have no verdict yet, Options.Parallel at once.
func (o Options) searchAll(all []Search, do func(*Search), listen func(Search)) {
	var jobs errgroup.Group
	var mu sync.Mutex
	jobs.SetLimit(max(o.Parallel, 1))
	for i := range all {
		if all[i].Verdict != "" {
			continue
		}
		jobs.Go(func() error {
			do(&all[i])
			mu.Lock()
			defer mu.Unlock()
			listen(all[i])
			return nil
		})
	}
	_ = jobs.Wait() // no job returns an error
}

// run searches for the fault, and judges what was found. idle is the verdict if the fault has changed nothing.
func (s *Search) run(ctx context.Context, search Searcher, idle Verdict) {
	defer s.interrupt(ctx)
	var err error
	s.Found, err = search(ctx, s.Fault, s.Proxier, 0)
	switch {
	case err != nil:
		s.Verdict, s.Reason = Broken, firstLine(err.Error())
	case s.Touched == 0:
		s.Verdict, s.Reason = idle, "it has changed nothing"
	case s.Case == "":
		s.Verdict = Survived
	default:
		s.Verdict = Caught
	}
}

// interrupt makes a search that ended without a result NotRun, if the context has ended: what is interrupted is not
// broken.
func (s *Search) interrupt(ctx context.Context) {
	if s.Verdict == Broken && ctx.Err() != nil {
		*s = Search{Fault: s.Fault, Proxier: s.Proxier, Verdict: NotRun}
	}
}

// control searches without a fault. A proxier on which nothing was caught needs no control.
func (s *Search) control(ctx context.Context, search Searcher, cases int) {
	defer s.interrupt(ctx)
	var err error
	s.Verdict = Passed
	if cases > 0 {
		s.Found, err = search(ctx, "", s.Proxier, cases)
	}
	switch {
	case err != nil:
		s.Verdict, s.Reason = Broken, firstLine(err.Error())
	case s.Case != "":
		s.Verdict, s.Reason = Broken, fmt.Sprintf("%s fails without a fault: %s", s.Case, strings.Join(s.Kinds, ", "))
	}
}

// longest returns how many cases the longest successful search on a proxier has played.
func (all *Searches) longest(proxier string) (cases int) {
	for _, s := range all.Searches {
		if s.Proxier == proxier && s.Verdict == Caught {
			cases = max(cases, s.Cases)
		}
	}
	return cases
}

// counts returns how many searches have each verdict, the controls included.
func (all *Searches) counts() map[Verdict]int {
	n := map[Verdict]int{}
	for _, list := range [][]Search{all.Controls, all.Searches} {
		for _, s := range list {
			n[s.Verdict]++
		}
	}
	return n
}

// Judged returns how many searches have a result, and how many there are together with those that were not run.
func (all *Searches) Judged() (judged, of int) {
	return judgedOf(all.Searches, func(s Search) Verdict { return s.Verdict })
}

// ExitCode returns 0 if every fault was found that was searched, 1 if one was not, 2 if something was broken or not
// run, or nothing was searched.
func (all *Searches) ExitCode() int {
	n := all.counts()
	switch {
	case n[Broken] > 0, n[Caught]+n[Survived] == 0:
		return 2
	case n[Survived] > 0:
		return 1
	case n[NotRun] > 0:
		return 2
	}
	return 0
}

// Write prints a table of the searches, and how many faults were found.
func (all *Searches) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tfault\tproxier\tcases\tstates\ttime\tfound by")
	for _, s := range all.Searches {
		if s.Verdict == NotRun {
			continue
		}
		by := s.Reason
		if s.Verdict == Caught {
			by = strings.Join(s.Kinds, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%.1f s\t%s\n", symbols[s.Verdict], s.Fault, s.Proxier, s.Cases, s.States,
			(time.Duration(s.TookMS) * time.Millisecond).Seconds(), by)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range all.Controls {
		if c.Verdict == Broken {
			fmt.Fprintf(w, "! %s without a fault: %s\n", c.Proxier, c.Reason)
		}
	}
	n := all.counts()
	_, err := fmt.Fprintf(w, "%d of %d faults were found; %d do not concern the traffic that generated cases judge, or "+
		"not this proxier; %d had no result\n", n[Caught], n[Caught]+n[Survived], n[Foreign], n[Broken])
	return err
}

// WriteJSON writes search.json into the folder, which it creates if necessary.
func (all *Searches) WriteJSON(folder string) error {
	return report.WriteJSON(filepath.Join(folder, "search.json"), all)
}
