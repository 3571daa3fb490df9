// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/store"
)

func TestAnImageIsProvided(t *testing.T) {
	there := make(chan struct{})
	w := newWorldOf(t, kubelet.Images{
		"late": {Server: kubelet.Pause, Provide: func(ctx context.Context, progress func(string)) error {
			progress("making it")
			select {
			case <-there:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}},
		"never": {Server: kubelet.Pause, Provide: func(context.Context, func(string)) error {
			return errors.New("it cannot be made")
		}},
	})
	is := func(reason, message string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason &&
				s[0].State.Waiting.Message == message
		}
	}
	for _, name := range []string{"late", "deleted"} {
		w.pod(name, "{containers: [{name: c, image: late}]}")
		w.await(name, "waiting", is("ContainerCreating", "making it"))
	}
	nstest.Must(t, w.Store().Delete(store.KindPod, "default", "deleted"))
	w.gone("deleted")
	close(there)
	w.awaitReady("late")
	w.pod("never", "{containers: [{name: c, image: never}]}")
	w.await("never", "failed", is("ErrImagePull", "it cannot be made"))
}
