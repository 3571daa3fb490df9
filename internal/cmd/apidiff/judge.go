// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/observe"
)

// testCase is a sequence of requests in a namespace of its own.
type testCase struct {
	name  string
	steps []request // {ns} in a path stands for the namespace
	// lists are collections that must be equal in the end, when the controllers have done their work.
	lists []string
	// watched are collections whose watch streams must be equal.
	watched []string
}

// controllersLimit is how long a controller of Kubernetes may take for its part of a case.
const controllersLimit = 5 * time.Second

// judge compares two sides.
type judge struct {
	theirs, ours *side
	verbose      bool
	out          io.Writer

	cases, requests, known, unexpected int
	met                                map[string]int // how often each reason of a known difference applied
}

// judge runs a case on both sides.
func (j *judge) judge(ctx context.Context, c testCase) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watches
	j.cases++
	space := request{method: http.MethodPost, path: "/api/v1/namespaces", body: object{"apiVersion": "v1",
		"kind": "Namespace", "metadata": object{"name": c.name}}}
	if _, err := j.both(ctx, space); err != nil {
		return err
	}
	place := strings.NewReplacer("{ns}", c.name)
	var streams [2][]*events
	for _, path := range c.watched {
		for i, s := range []*side{j.theirs, j.ours} {
			e, err := s.watch(ctx, place.Replace(path))
			if err != nil {
				return err
			}
			streams[i] = append(streams[i], e)
		}
	}
	for i, r := range c.steps {
		r.path = place.Replace(r.path)
		got, err := j.both(ctx, r)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s, request %d, %s %s", c.name, i+1, r.method, r.path)
		j.report(what, r.body, differences(got[0], got[1]))
	}
	for i, path := range c.watched {
		path = place.Replace(path)
		j.report(c.name+", watch of "+path, nil, j.settled(ctx, func() ([]difference, error) {
			return compareObjects("Watch", streams[0][i].types(), streams[1][i].types()), nil
		}))
	}
	for _, path := range c.lists {
		r := request{method: http.MethodGet, path: place.Replace(path)}
		j.report(c.name+", in the end, "+r.path, nil, j.settled(ctx, func() ([]difference, error) {
			got, err := j.both(ctx, r)
			return differences(got[0], got[1]), err
		}))
	}
	space.method, space.path, space.body = http.MethodDelete, space.path+"/"+c.name, nil
	_, err := j.both(ctx, space)
	return err
}

// both sends a request to both sides, and returns the answer of Kubernetes first.
func (j *judge) both(ctx context.Context, r request) (got [2]answer, err error) {
	j.requests++
	for i, s := range []*side{j.theirs, j.ours} {
		if got[i], err = s.do(ctx, r); err != nil {
			return got, err
		}
	}
	return got, nil
}

var errDiffers = errors.New("there are differences")

// settled returns the differences that last: those after all unknown ones have gone, or at the end of the limit.
func (j *judge) settled(ctx context.Context, ask func() ([]difference, error)) (last []difference) {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(controllersLimit))
	defer cancel()
	_ = observe.Await(ctx, nil, func(context.Context) (err error) { // what is left at the end is reported
		if last, err = ask(); err != nil {
			return err
		}
		for _, d := range last {
			if reasonFor(d) == "" {
				return errDiffers
			}
		}
		return nil
	})
	return last
}

// report prints the differences of one comparison and counts them.
func (j *judge) report(what string, body any, all []difference) {
	var lines []string
	for _, d := range all {
		reason := reasonFor(d)
		if reason != "" {
			j.known++
			if j.met == nil {
				j.met = map[string]int{}
			}
			j.met[reason]++
			if !j.verbose {
				continue
			}
			reason = " (known: " + reason + ")"
		} else {
			j.unexpected++
		}
		lines = append(lines, "  "+d.String()+reason)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(j.out, what)
	if body != nil {
		fmt.Fprintln(j.out, "  sent", compact(body))
	}
	for _, line := range lines {
		fmt.Fprintln(j.out, line)
	}
}

func (j *judge) summarize(took time.Duration) {
	fmt.Fprintf(j.out, "\n%s and viplab: %d cases, %d requests to each, %d known differences, %d others, %s\n",
		j.theirs.name, j.cases, j.requests, j.known, j.unexpected, took.Round(time.Second/10))
	for _, k := range knownDifferences {
		if n := j.met[k.reason]; n > 0 {
			fmt.Fprintf(j.out, "  known, %d times: %s\n", n, k.reason)
		}
	}
}
