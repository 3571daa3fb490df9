// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/suite/spec"
)

// failing is a case that generated and a judge for which it fails by one rule as long as it has an external IP, and by
// another one as soon as it has no pods.
func failing(t *testing.T) (*Failure, *judge) {
	t.Helper()
	external := func(s *corev1.Service) bool { return len(s.Spec.ExternalIPs) > 0 }
	j := &judge{kinds: []string{"external-local Silence"}}
	j.play = func(_ context.Context, cases []Case) (results []spec.Result, err error) {
		for _, c := range cases {
			r := spec.Result{Verdict: spec.Pass}
			last := c.States[len(c.States)-1]
			switch {
			case len(last.Pods) == 0:
				r = spec.Result{Verdict: spec.Fail, Probed: []spec.Probed{{Row: "no-endpoints/pod", Outcomes: []string{"Silence"}}}}
			case slices.ContainsFunc(last.Services, external):
				r = spec.Result{Verdict: spec.Fail, Probed: []spec.Probed{{Row: "external-local/pod", Outcomes: []string{"Silence"}}}}
			}
			results = append(results, r)
		}
		return results, nil
	}
	for i := range uint64(200) {
		c := Random(1, i)
		if last := c.States[len(c.States)-1]; len(c.States) > 2 && slices.ContainsFunc(last.Services, external) {
			f := &Failure{Case: c, Result: spec.Result{Verdict: spec.Fail}}
			if err := f.again(t.Context(), j); err != nil || f.Again != copies {
				t.Fatalf("%v: it fails %d times of %d", err, f.Again, f.Of)
			}
			return f, j
		}
	}
	t.Fatal("no case with an external IP")
	return nil, nil
}

func TestAFailureIsMadeSmallWithoutBecomingAnotherOne(t *testing.T) {
	f, j := failing(t)
	kept := 0
	err := f.shrink(t.Context(), j, 0, func(*Failure) error { kept++; return nil })
	if err != nil || kept < 2 || f.Again != copies || f.Tries == 0 {
		t.Fatalf("%v, kept %d times, %d times again after %d tries", err, kept, f.Again, f.Tries)
	}
	if len(f.Case.States) != 1 || len(f.Case.States[0].Pods) != 1 || len(f.Case.States[0].Services) != 1 ||
		len(f.Case.States[0].Slices) != 0 || len(f.Case.States[0].Services[0].Spec.ExternalIPs) != 1 {
		t.Errorf("%+v is left, want a pod and a Service with an external IP", f.Case.States)
	}
	if got := kindsOf(f.Result); !slices.Equal(got, j.kinds) {
		t.Errorf("it fails by %q, want %q", got, j.kinds)
	}
}

func TestMakingSmallerEnds(t *testing.T) {
	interrupted := errors.New("interrupted")
	for name, cancelled := range map[string]bool{"its time is over": false, "it is interrupted": true} {
		t.Run(name, func(t *testing.T) {
			f, j := failing(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			play, calls, smaller := j.play, 0, 0
			j.play = func(limited context.Context, cases []Case) ([]spec.Result, error) {
				if calls++; calls == 5 { // hangs
					if cancelled {
						cancel(interrupted)
					}
					<-limited.Done()
				}
				return play(limited, cases)
			}
			limit := time.Second
			if cancelled {
				limit = time.Hour // the interrupt comes first, however busy the machine is
			}
			err := f.shrink(ctx, j, limit, func(f *Failure) error { smaller = len(f.Case.States); return nil })
			if cancelled != errors.Is(err, interrupted) || !cancelled && err != nil {
				t.Errorf("got %v", err)
			}
			if smaller != 1 || len(f.Case.States) != 1 {
				t.Errorf("%d states were kept, %d are left, want one", smaller, len(f.Case.States))
			}
		})
	}
}

func TestWhatIsLeftMustFailAgain(t *testing.T) {
	f, j := failing(t)
	original, play := len(f.Case.States), j.play
	j.play = func(ctx context.Context, cases []Case) ([]spec.Result, error) {
		if len(cases) == copies { // as if it had failed by chance
			return make([]spec.Result, copies), nil
		}
		return play(ctx, cases)
	}
	if err := f.shrink(t.Context(), j, 0, func(*Failure) error { return nil }); err != nil || len(f.Case.States) != original {
		t.Errorf("%v: %d states are left, want all %d", err, len(f.Case.States), original)
	}
}
