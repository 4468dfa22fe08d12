"""The shell of intake's first stage: the public topic and the topics of projects."""
