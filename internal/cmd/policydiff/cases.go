// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// step is the state of the cluster in a step of a case of cyclonus. Its pods have no addresses.
type step struct {
	Case, Step int
	Given      string
	Cluster    oracle.Cluster
}

func (s step) name() string { return fmt.Sprintf("cyclonus-%d-%d", s.Case, s.Step) }

// address returns the address of a pod, given its number in a step. That of the ninth, z/c, is in policies.
func address(pod int, stack lab.Stack) netip.Addr {
	if stack == lab.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%d", pod/3+1, pod%3+2))
	}
	return netip.AddrFrom4([4]byte{10, 244, byte(pod/3 + 1), byte(pod%3 + 2)})
}

// casesOf returns all steps of all cases.
func casesOf(ctx context.Context, stack lab.Stack) ([]step, error) {
	path, err := cyclonus.Path()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "cases", address(8, stack).String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []step
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var s step
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
}

// question stores the step's objects and returns them as the API serves them, with defaults.
func (s step) question(stack lab.Stack) (question, error) {
	state := store.New(store.Config{Stack: stack})
	err := state.Do(func(tx *store.Tx) error {
		if err := tx.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
			return err
		}
		for name, labels := range s.Cluster.Namespaces {
			if err := tx.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
				return err
			}
		}
		for i, p := range s.Cluster.Pods {
			o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels},
				Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "all", Image: cluster.PauseImage,
					Ports: p.Ports}}}}
			if err := tx.Apply(o); err != nil {
				return err
			}
			if err := store.UpdateStatus(tx, p.Namespace, p.Name, store.ReportRunning(true, address(i, stack))); err != nil {
				return err
			}
		}
		for _, p := range s.Cluster.Policies {
			if err := tx.Apply(p.DeepCopy()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return question{}, fmt.Errorf("%s (%s): %w", s.name(), s.Given, err)
	}
	return question{name: fmt.Sprintf("%s, %s (%s)", s.name(), stack, s.Given),
		Cluster: oracle.FromSnapshot(state.Snapshot())}, nil
}

// onGrid reports whether the step is about the pods that cases begin with, unchanged.
func (s step) onGrid(first step) bool {
	return reflect.DeepEqual(s.Cluster.Namespaces, first.Cluster.Namespaces) &&
		reflect.DeepEqual(s.Cluster.Pods, first.Cluster.Pods)
}

// write writes the steps that are about the pods of viplab's grid as cases, with the tables of cyclonus.
func write(ctx context.Context, path string, steps []step) error {
	o, err := start(ctx)
	if err != nil {
		return err
	}
	var cases []netpol.Case
	for _, s := range steps {
		if !s.onGrid(steps[0]) {
			continue
		}
		c := netpol.Case{ID: s.name(), Priority: spec.P1, Given: s.Given, Source: "cyclonus " + cyclonus.Version,
			Policies: s.Cluster.Policies}
		for _, p := range c.Policies {
			p.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
		}
		if c.Blocked, err = tableOf(o, c); err != nil {
			return errors.Join(err, o.stop())
		}
		cases = append(cases, c)
	}
	file, err := os.Create(path)
	if err != nil {
		return errors.Join(err, o.stop())
	}
	fmt.Printf("%s: %d of %d steps of cyclonus' cases; the others change pods or namespaces\n", path, len(cases),
		len(steps))
	return errors.Join(netpol.WriteCases(file, cases...), file.Close(), o.stop())
}

// tableOf returns the table of cyclonus, or nil if it differs in a known way.
func tableOf(o *oracles, c netpol.Case) (*netpol.Table, error) {
	cluster, err := c.Cluster(lab.IPv4)
	if err != nil {
		return nil, err
	}
	q := question{name: c.ID, Cluster: cluster, Ports: netpol.Ports}
	a, err := o.answer(q)
	if err != nil {
		return nil, err
	}
	var table netpol.Table
	for i, f := range q.flows() {
		if got := fmt.Sprintf("%s>%s:%s", f.from, f.to, netpol.Ports[i%len(netpol.Ports)]); got != netpol.CellAt(i).String() {
			return nil, fmt.Errorf("%s: cell %d is %s", c.ID, i, got)
		}
		table[i] = a.Allowed[i] == '0' && !netpol.CellAt(i).Self()
		if table[i] == cluster.Allows(f.Flow) {
			return nil, nil
		}
	}
	return &table, nil
}
