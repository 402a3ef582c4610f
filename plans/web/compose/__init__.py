"""The pages on which a plan comes about: asked for in words, written as text, or changed."""
