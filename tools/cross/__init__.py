"""Builds and checks the macOS arm64 wheels on Linux; the command is build_wheels.py."""
