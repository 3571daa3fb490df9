// SPDX-License-Identifier: Apache-2.0

package store

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// wakeAt makes the controller of a workload look at it again at a time in the future, for clusters with a clock.
func (tx *Tx) wakeAt(o Object, at time.Time) {
	r := ref{ResourceOf(o).Kind, KeyOf(o)}
	if was, ok := tx.wakeups[r]; !ok || at.Before(was) {
		tx.wakeups[r] = at
	}
}

// arm starts the timers of a change that has been committed. The caller holds the lock.
func (s *Store) arm(wakeups map[ref]time.Time) {
	for r, at := range wakeups {
		if was, ok := s.due[r]; ok && !was.After(at) {
			continue
		}
		s.due[r] = at
		s.clock.AfterFunc(at.Sub(s.now()), func() { go s.wake(r, at) }) // a clock of tests calls it with its lock held
	}
}

// wake makes a controller look at an object because it is time.
func (s *Store) wake(r ref, at time.Time) {
	_ = s.Do(func(tx *Tx) error { // controllers do not fail
		if tx.s.due[r].Equal(at) {
			delete(tx.s.due, r)
		}
		tx.work[r.kind][r.key] = struct{}{}
		return nil
	})
}

// passed reports whether a time has come. If it has not, the controller of an object looks again when it has.
func (tx *Tx) passed(o Object, at time.Time) bool {
	if !at.After(tx.time) {
		return true
	}
	tx.wakeAt(o, at)
	return false
}

func seconds[N int32 | int64](n N) time.Duration { return time.Duration(n) * time.Second }

// isAvailable reports whether a pod of a workload has been ready for as many seconds as it takes to count.
func (tx *Tx) isAvailable(owner Object, p *corev1.Pod, minReady int32) bool {
	if !isReady(p) {
		return false
	}
	if tx.s.clock == nil || minReady <= 0 {
		return true
	}
	var since time.Time
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			since = c.LastTransitionTime.Time
		}
	}
	return tx.passed(owner, since.Add(seconds(minReady)))
}

// availableOf counts the pods of a workload that are available.
func (tx *Tx) availableOf(owner Object, pods []*corev1.Pod, minReady int32) int32 {
	return count(pods, func(p *corev1.Pod) bool { return tx.isAvailable(owner, p, minReady) })
}
