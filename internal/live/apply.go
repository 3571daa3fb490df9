// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
)

// The requests of "viplab apply".
const (
	Apply  = "apply"  // ApplyArgs; prints what it has done with each object
	Settle = "settle" // SettleArgs; returns when pods run and the programs have programmed the state
)

// ApplyArgs are the arguments of Apply.
type ApplyArgs struct {
	Manifests []Manifest
	// Namespace is that of objects without one. Empty means default.
	Namespace string
}

// apply stores the objects of manifests, all or none.
func (l *Lab) apply(_ context.Context, call *control.Call) (any, error) {
	var args ApplyArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	objects, err := Objects(args.Manifests, args.Namespace, call.Stderr)
	if err != nil {
		return nil, err
	}
	var done []string
	err = l.standing.Cluster().Store().Do(func(tx *store.Tx) error {
		before := make([]store.Object, len(objects))
		for i, o := range objects {
			before[i], _ = tx.Object(store.ResourceOf(o).Kind, o.GetNamespace(), o.GetName())
		}
		if err := tx.Apply(objects...); err != nil {
			return err
		}
		for i, o := range objects {
			r := store.ResourceOf(o)
			after, _ := tx.Object(r.Kind, o.GetNamespace(), o.GetName())
			done = append(done, fmt.Sprintf("%s/%s %s", r.Plural, o.GetName(), outcome(before[i], after)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, line := range done {
		fmt.Fprintln(call.Stdout, line)
	}
	return nil, nil
}

// outcome says what an apply has done to an object.
func outcome(before, after store.Object) string {
	switch {
	case before == nil:
		return "created"
	case after != nil && before.GetResourceVersion() == after.GetResourceVersion():
		return "unchanged"
	}
	return "configured"
}

// Objects returns the objects of manifests for commands that create them: as DecodeKnown, with a warning for each that
// it skips. It is an error if it skips all.
func Objects(manifests []Manifest, namespace string, warnings io.Writer) ([]store.Object, error) {
	objects, skipped, err := DecodeKnown(manifests, namespace)
	if err != nil {
		return nil, err
	}
	for _, s := range skipped {
		fmt.Fprintf(warnings, "Warning: skipped %v\n", s)
	}
	if len(objects) == 0 && len(skipped) > 0 {
		return nil, fmt.Errorf("%s: nothing is left to apply: viplab knows none of the kinds there. "+
			"Add an object of a kind that the warning lists", Sources(manifests))
	}
	return objects, nil
}

// Sources names the files of manifests.
func Sources(manifests []Manifest) string {
	var names []string
	for _, m := range manifests {
		names = append(names, m.Source)
	}
	return strings.Join(names, ", ")
}

// DecodeKnown returns the objects of manifests, and those that it skips because it does not know their kind. Objects of
// a namespaced kind without a namespace get the given one.
func DecodeKnown(manifests []Manifest, namespace string) ([]store.Object, []*manifest.DecodeError, error) {
	var objects []store.Object
	var skipped []*manifest.DecodeError
	var errs []error
	for _, m := range manifests {
		more, unknown, err := manifest.DecodeKnown(m.Source, m.Text)
		objects, skipped, errs = append(objects, more...), append(skipped, unknown...), append(errs, err)
	}
	for _, o := range objects {
		if r := store.ResourceOf(o); r.Namespaced && o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
	}
	return objects, skipped, errors.Join(errs...)
}

// SettleArgs are the arguments of Settle.
type SettleArgs struct {
	// Patient means to wait longer for pods that start, and also for pods that end.
	Patient bool
}

// settleLimit is how long a request waits for the programs on the nodes.
const settleLimit = 10 * time.Second

func (l *Lab) settle(ctx context.Context, call *control.Call) (any, error) {
	var args SettleArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	return nil, l.settled(ctx, args)
}

// settled waits for pods, and then until the programs have programmed the state.
func (l *Lab) settled(ctx context.Context, args SettleArgs) error {
	limit := machine.Limit(settleLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	if args.Patient {
		l.awaitPods(ctx, limit/2, func(p *corev1.Pod) bool { return starts(p) || p.DeletionTimestamp != nil })
	} else {
		l.awaitPods(ctx, readyLimit, starts)
	}
	return l.standing.Settle(ctx)
}
