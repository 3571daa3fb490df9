// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"
)

// pull returns the container's image once it is there. It tries again and again, with back-off, until the container
// shall end.
func (u *unit) pull() (Image, error) {
	for tries := int32(0); ; tries++ {
		image, err := u.pod.kubelet.config.Images.Find(u.spec.Image)
		if err == nil {
			image = image.running(u.spec.Command)
			err = u.provide(image)
		}
		if err == nil {
			u.tell("Pulled", "Container image %q already present on machine", u.spec.Image)
			return image, nil
		}
		u.warn("Failed", "Failed to pull image %q: %v", u.spec.Image, err)
		u.warn("Failed", "Error: ErrImagePull")
		u.waiting("ErrImagePull", err.Error())
		if !u.pause(time.After(u.backOff(0))) {
			return Image{}, err
		}
		u.tell("BackOff", "Back-off pulling image %q", u.spec.Image)
		u.warn("Failed", "Error: ImagePullBackOff")
		u.waiting("ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: %v", u.spec.Image, err))
		if !u.pause(u.retry(image, tries)) {
			return Image{}, err
		}
	}
}

// retry returns when to try again: never if the image is unknown, since a lab learns no new names.
func (u *unit) retry(image Image, tries int32) <-chan time.Time {
	if image.Provide == nil {
		return nil
	}
	return time.After(u.backOff(tries))
}

// provide makes what the image needs. It returns early if the container shall end.
func (u *unit) provide(image Image) error {
	if image.Provide == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(u.pod.ctx)
	defer cancel()
	go func() {
		select {
		case <-u.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	return image.Provide(ctx, func(progress string) {
		u.tell("Pulling", "%s", progress)
		u.waiting("ContainerCreating", progress)
	})
}
